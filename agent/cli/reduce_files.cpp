#include "agent/cli/reduce_files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <span>

#include "agent/cli/control_client.hpp"
#include "agent/client/lanekeeper.h"
#include "agent/safetensors.hpp"
#include "dataplane/base/clock.hpp"
#include "dataplane/base/error.hpp"

namespace lk {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kMostInFlight = 4096;

// Neighbouring tensors of one type go as one op.
struct Run {
  DType dtype{};
  Bytes begin = 0, end = 0;
};

std::vector<Run> runs_of(const SafetensorsFile& file) {
  std::vector<SafetensorsTensor> tensors = file.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<Run> runs;
  for (const SafetensorsTensor& t : tensors) {
    if (t.begin == t.end) continue;
    if (!runs.empty() && runs.back().dtype == t.dtype && runs.back().end == t.begin) {
      runs.back().end = t.end;
    } else {
      runs.push_back({t.dtype, t.begin, t.end});
    }
  }
  return runs;
}

[[noreturn]] void fail(lk_status status, const std::string& what) {
  const std::string line = fmt::format("{}{}{}", what, what.empty() ? "" : ": ", lk_last_error());
  if (status == LK_DISCONNECTED || status == LK_SYSTEM) throw AgentGone(line);
  if (status == LK_INVALID) throw InputError(line);
  throw OpFailed(line);
}

void check(lk_status status, const std::string& what) {
  if (status != LK_OK) fail(status, what);
}

struct Detach {
  void operator()(lk_session* s) const noexcept { lk_detach(s); }
};

// All ranks of one group in one session, each with a buffer of its own.
class Ranks {
 public:
  Ranks(const ReduceJob& job, std::size_t ranks, Bytes bytes) : timeout_ns_(job.timeout_ns), bytes_(bytes) {
    lk_options options{};
    options.data_bytes = ranks * ((bytes + 127) / 64 * 64) + 4096;
    options.ops_in_flight = kMostInFlight;
    const std::string name = fmt::format("lanectl {}", ::getpid());
    options.name = name.c_str();
    lk_session* session = nullptr;
    check(lk_attach(job.socket.c_str(), &options, &session), "attach");
    session_.reset(session);
    const std::string group = job.group.empty() ? fmt::format("lanectl-{}", ::getpid()) : job.group;
    for (std::size_t r = 0; r < ranks; ++r) {
      void* memory = nullptr;
      check(lk_alloc(session, std::max<Bytes>(bytes, 64), &memory), "memory");
      buffers_.push_back(static_cast<std::byte*>(memory));
      lk_group* joined = nullptr;
      check(lk_group_join(session, group.c_str(), static_cast<std::uint16_t>(r), static_cast<std::uint16_t>(ranks),
                          LK_ANY_GPU, &joined),
            fmt::format("rank {}", r));
      groups_.push_back(joined);
    }
    for (lk_group* g : groups_) check(lk_group_wait(g, 30 * LK_SECOND), "group");
  }

  std::size_t size() const noexcept { return buffers_.size(); }
  std::byte* buffer(std::size_t rank) noexcept { return buffers_[rank]; }
  bool identical() const noexcept {
    return std::all_of(buffers_.begin(), buffers_.end(),
                       [this](const std::byte* b) { return std::memcmp(b, buffers_[0], bytes_) == 0; });
  }

  // Enters one op of every rank by `call(rank, cookie)`; results of earlier ones are taken where there is no room.
  template <typename Call>
  void enter(Call&& call) {
    while (cookies_.size() + size() > kMostInFlight) take_one();
    for (std::size_t r = 0; r < size(); ++r) {
      std::uint64_t cookie = 0;
      check(call(groups_[r], buffers_[r], r, &cookie), fmt::format("rank {}", r));
      cookies_.push_back(cookie);
      ++entered_;
    }
  }
  void take_all() {
    while (!cookies_.empty()) take_one();
  }
  std::size_t entered() const noexcept { return entered_; }
  std::size_t completed() const noexcept { return completed_; }

 private:
  void take_one() {
    lk_result result{};
    const lk_status status = lk_wait(session_.get(), cookies_.front(), timeout_ns_, &result);
    if (status != LK_OK) fail(status, "");  // it says which op
    cookies_.erase(cookies_.begin());
    ++completed_;
  }

  Nanos timeout_ns_;
  Bytes bytes_;
  std::unique_ptr<lk_session, Detach> session_;
  std::vector<std::byte*> buffers_;
  std::vector<lk_group*> groups_;
  std::vector<std::uint64_t> cookies_;  // entered, not yet taken; oldest first
  std::size_t entered_ = 0, completed_ = 0;
};

// Before any work: the folder is there or can be made, no two results have one name, and none of them would take the
// place of an input or of something that is no file.
void prepare_output(const std::string& folder, const std::vector<std::string>& names,
                    const std::vector<std::string>& inputs) {
  if (folder.empty()) return;
  std::set<std::string> seen;
  for (const std::string& n : names) {
    if (!seen.insert(n).second)
      throw InputError(fmt::format("--output {}: two inputs are named {}, expected names that differ", folder, n));
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    throw InputError(
        fmt::format("--output {}: {}, expected a folder", folder, error ? error.message() : "is no folder"));
  }
  for (const std::string& n : names) {
    const fs::path target = fs::path(folder) / n;
    check_replaceable(target.string());
    for (const std::string& input : inputs) {
      if (!fs::equivalent(target, input, error)) continue;
      throw InputError(fmt::format("--output {}: {} would take the place of the input {}, expected another folder",
                                   folder, n, input));
    }
  }
}

// While it lives, Ctrl-C waits: it must not leave files beside those that are being written.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int s : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set, s);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~SignalsWait() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_{};
};

json write_results(const std::string& folder, const std::vector<std::string>& names, const SafetensorsFile& like,
                   Ranks& ranks, std::size_t first) {
  json outputs = json::array();
  if (folder.empty()) return outputs;
  const SignalsWait wait;
  std::vector<std::unique_ptr<NewSafetensors>> files;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string path = (fs::path(folder) / names[i]).string();
    const std::span data(ranks.buffer(first + i), like.data.size());
    files.push_back(std::make_unique<NewSafetensors>(path, like, data));
    outputs.push_back(path);
  }
  for (const auto& file : files) file->put_in_place();  // all are written, so a full disk has harmed nothing
  return outputs;
}

json summary(Ranks& ranks, const SafetensorsFile& file, Nanos elapsed) {
  if (ranks.completed() != ranks.entered()) {
    throw OpFailed(fmt::format("{} ops entered, {} completed", ranks.entered(), ranks.completed()));
  }
  return {{"ranks", ranks.size()},    {"tensors", file.tensors.size()},
          {"ops", ranks.completed()}, {"payload_bytes", file.data.size()},
          {"elapsed_ns", elapsed},    {"identical", ranks.identical()}};
}

std::vector<std::string> names_of(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  names.reserve(paths.size());
  for (const std::string& p : paths) names.push_back(fs::path(p).filename().string());
  return names;
}

}  // namespace

json all_reduce_files(const ReduceJob& job, const std::vector<std::string>& inputs, bool average, unsigned repeat) {
  std::vector<SafetensorsFile> files;
  files.reserve(inputs.size());
  for (const std::string& path : inputs) files.push_back(read_safetensors(path));
  check_same_layout(files);
  const std::vector<std::string> names = names_of(inputs);
  prepare_output(job.output, names, inputs);
  const std::vector<Run> runs = runs_of(files.front());
  Ranks ranks(job, files.size(), files.front().data.size());
  const MonotonicClock clock;
  const Nanos begin = clock.now();
  bool identical = true;
  for (unsigned round = 0; round < repeat; ++round) {
    for (std::size_t r = 0; r < files.size(); ++r)
      std::memcpy(ranks.buffer(r), files[r].data.data(), files[r].data.size());
    for (const Run& run : runs) {
      ranks.enter([&](lk_group* group, std::byte* buffer, std::size_t, std::uint64_t* cookie) {
        return lk_all_reduce(group, buffer + run.begin, buffer + run.begin, (run.end - run.begin) / size_of(run.dtype),
                             static_cast<lk_dtype>(run.dtype), average ? LK_AVG : LK_SUM, cookie);
      });
    }
    ranks.take_all();
    identical = identical && ranks.identical();
  }
  json out = summary(ranks, files.front(), clock.now() - begin);
  out["identical"] = identical;
  out["outputs"] = identical ? write_results(job.output, names, files.front(), ranks, 0) : json::array();
  return out;
}

json broadcast_file(const ReduceJob& job, const std::string& input, unsigned count) {
  const SafetensorsFile file = read_safetensors(input);
  std::vector<std::string> names;
  for (unsigned r = 1; r < count; ++r) names.push_back(fmt::format("rank{}.safetensors", r));
  prepare_output(job.output, names, {input});
  Ranks ranks(job, count, file.data.size());
  std::memcpy(ranks.buffer(0), file.data.data(), file.data.size());
  const MonotonicClock clock;
  const Nanos begin = clock.now();
  for (const Run& run : runs_of(file)) {
    ranks.enter([&](lk_group* group, std::byte* buffer, std::size_t, std::uint64_t* cookie) {
      return lk_broadcast(group, buffer + run.begin, buffer + run.begin, (run.end - run.begin) / size_of(run.dtype),
                          static_cast<lk_dtype>(run.dtype), 0, cookie);
    });
  }
  ranks.take_all();
  json out = summary(ranks, file, clock.now() - begin);
  out["identical"] = ranks.identical() && std::memcmp(ranks.buffer(0), file.data.data(), file.data.size()) == 0;
  out["outputs"] = write_results(job.output, names, file, ranks, 1);
  return out;
}

}  // namespace lk
