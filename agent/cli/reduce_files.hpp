// ReduceFiles: lanectl's allreduce and broadcast: safetensors files in, one rank a file, through the same client
// library and sessions that a training process uses, and files out. One session holds all ranks. Fails: InputError for
// files and options that are wrong, SystemError for the system (a full disk), AgentGone and OpFailed (exit code 1) for
// what the agent says. One line each. Nothing is written unless every op was good.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "dataplane/base/units.hpp"

namespace lk {

class OpFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ReduceJob {
  std::string socket, group, output;  // output: a folder; empty: none
  Nanos timeout_ns = 60 * kSecond;    // of one op
};

// `average`: else the sum. `repeat`: so many times, each from the inputs as read.
nlohmann::json all_reduce_files(const ReduceJob& job, const std::vector<std::string>& inputs, bool average,
                                unsigned repeat);
nlohmann::json broadcast_file(const ReduceJob& job, const std::string& input, unsigned ranks);

}  // namespace lk
