// LabGradients: the real gradients that the lab reduces, and the bits that must come of them: safetensors files, one a
// rank, in F32, F16 and BF16, each file one flat buffer. The right bits are reduce/reference's, not the data path's.
// Clusters with more GPUs than there are files take the files in turn. Owner: the lab's control thread.
// Fails at construction: InputError, one line: a file that is missing, cut, or laid out differently from the others.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/safetensors.hpp"
#include "agent/workload.hpp"
#include "dataplane/api/group.hpp"

namespace lk {

class LabGradients {
 public:
  explicit LabGradients(const std::string& folder);

  std::size_t files(DType dtype) const noexcept { return of(dtype).size(); }
  Bytes bytes(DType dtype) const noexcept { return of(dtype).front().data.size(); }
  // What the GPU at `endpoint` gives to an op; ops of another turn give it another file's.
  const std::byte* input(DType dtype, EndpointId endpoint, unsigned turn) const noexcept;
  // What every rank must have afterwards. Computed once.
  const std::byte* wanted(const PlannedOp& op, unsigned turn, const GroupSpec& group);

 private:
  const std::vector<SafetensorsFile>& of(DType d) const noexcept { return files_[static_cast<std::size_t>(d)]; }

  std::array<std::vector<SafetensorsFile>, 3> files_;  // by DType
  std::map<std::string, std::unique_ptr<std::byte[]>> wanted_;
};

// The memory of one op at every rank. Made once and used again: a result is poison until it is there.
class LabOpMemory {
 public:
  void prepare(const PlannedOp& op, unsigned turn, const GroupSpec& group, LabGradients& gradients);

  const std::byte* in(Rank r) const noexcept { return op_.in_place ? out_[r].get() : in_[r]; }
  std::byte* out(Rank r) noexcept { return out_[r].get(); }
  std::byte* scratch(Rank r) noexcept { return scratch_[r].get(); }
  std::uint64_t wrong_bits(Rank r) const noexcept;

 private:
  PlannedOp op_;
  Bytes bytes_ = 0, room_ = 0;
  std::vector<const std::byte*> in_;
  std::vector<std::unique_ptr<std::byte[]>> out_, scratch_;
  const std::byte* want_ = nullptr;
};

}  // namespace lk
