#include "agent/lab_gradients.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include "dataplane/base/error.hpp"
#include "dataplane/reduce/reference.hpp"

namespace lk {
namespace {

constexpr std::byte kPoison{0xa5};

// "….f16.safetensors" is F16, "….bf16.safetensors" BF16, all others F32.
DType dtype_of(const std::string& name) {
  if (name.ends_with(".bf16.safetensors")) return DType::kBF16;
  return name.ends_with(".f16.safetensors") ? DType::kF16 : DType::kF32;
}

}  // namespace

LabGradients::LabGradients(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
  }
  if (error) throw InputError(fmt::format("{}: {}; expected a folder of gradients", folder, error.message()));
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    SafetensorsFile file = read_safetensors(path);
    const DType expected = dtype_of(path);
    for (const SafetensorsTensor& t : file.tensors) {
      if (t.dtype != expected)
        throw InputError(fmt::format("{}: tensor {} is {}, expected {} as the file's name says", path, t.name,
                                     name_of(t.dtype), name_of(expected)));
    }
    files_[static_cast<std::size_t>(expected)].push_back(std::move(file));
  }
  for (const DType d : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (of(d).empty())
      throw InputError(
          fmt::format("{}: no {} gradients, expected *.safetensors files of each type", folder, name_of(d)));
    check_same_layout(of(d));
  }
}

const std::byte* LabGradients::input(DType dtype, EndpointId endpoint, unsigned turn) const noexcept {
  return of(dtype)[(endpoint + turn) % files(dtype)].data.data();
}

const std::byte* LabGradients::wanted(const PlannedOp& op, unsigned turn, const GroupSpec& group) {
  const std::string key = fmt::format("{} {} {} {} {} {} {} {}", static_cast<int>(op.kind), static_cast<int>(op.redop),
                                      static_cast<int>(op.dtype), op.count, op.root, turn % files(op.dtype),
                                      fmt::join(group.members, ","), fmt::join(group.domain_of, ","));
  std::unique_ptr<std::byte[]>& bits = wanted_[key];
  if (bits != nullptr) return bits.get();
  bits = std::make_unique<std::byte[]>(op.count * size_of(op.dtype) + 1);
  std::vector<const std::byte*> inputs;
  for (const EndpointId e : group.members) inputs.push_back(input(op.dtype, e, turn));
  if (op.kind == Collective::kBroadcast) {
    std::memcpy(bits.get(), inputs[op.root % inputs.size()], op.count * size_of(op.dtype));
    return bits.get();
  }
  std::vector<std::vector<std::size_t>> domains;
  for (const GroupDomain& d : group.domains) domains.emplace_back(d.ranks.begin(), d.ranks.end());
  reference_all_reduce(op.dtype, op.redop, op.count, domains, inputs, bits.get());
  return bits.get();
}

void LabOpMemory::prepare(const PlannedOp& op, unsigned turn, const GroupSpec& group, LabGradients& gradients) {
  const std::size_t ranks = group.members.size();
  op_ = op;
  bytes_ = op.count * size_of(op.dtype);
  if (out_.size() < ranks || room_ < bytes_) {
    room_ = std::max(room_, bytes_);
    out_.clear();
    scratch_.clear();
    for (std::size_t r = 0; r < ranks; ++r) {
      out_.push_back(std::make_unique<std::byte[]>(room_ + 1));
      scratch_.push_back(std::make_unique<std::byte[]>(room_ + 1));
    }
  }
  in_.clear();
  for (std::size_t r = 0; r < ranks; ++r) {
    in_.push_back(gradients.input(op.dtype, group.members[r], turn));
    if (op.in_place)
      std::memcpy(out_[r].get(), in_[r], bytes_);
    else
      std::fill_n(out_[r].get(), bytes_, kPoison);
  }
  want_ = gradients.wanted(op, turn, group);
}

std::uint64_t LabOpMemory::wrong_bits(Rank r) const noexcept {
  if (std::memcmp(out_[r].get(), want_, bytes_) == 0) return 0;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < bytes_; ++i)
    wrong += static_cast<unsigned>(std::popcount(static_cast<unsigned>(out_[r][i] ^ want_[i])));
  return wrong;
}

}  // namespace lk
