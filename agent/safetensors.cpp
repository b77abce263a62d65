#include "agent/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "dataplane/base/error.hpp"

namespace lk {
namespace {

using Json = nlohmann::ordered_json;

constexpr Bytes kLengthBytes = 8;
constexpr Bytes kMostHeaderBytes = 100'000'000;  // the format's own limit
constexpr int kMostDepth = 3;                    // header → tensor → shape

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw InputError(fmt::format("{}: {}", path, what));
}

// A name as it can stand in one line: names are from a file and may hold anything.
std::string shown(const std::string& name) {
  std::string out = "\"";
  for (const char c : name.substr(0, 120)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + (name.size() > 120 ? "…\"" : "\"");
}

// nlohmann takes the last of two equal keys in silence; two tensors of one name would then be one.
Json parse_header(const std::string& path, const std::string& text) {
  std::vector<std::set<std::string>> keys;
  std::string twice;
  bool deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMostDepth) deep = true;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second && twice.empty()) {
      twice = parsed.get<std::string>();
    }
    return !deep;  // what is too deep is dropped, not stored
  };
  Json header;
  try {
    header = Json::parse(text, watch);
  } catch (const Json::parse_error& e) {
    refuse(path, fmt::format("header is no JSON at byte {}", kLengthBytes + e.byte));
  } catch (const Json::exception&) {
    refuse(path, "header is no JSON that can be read");
  }
  if (deep) refuse(path, "header is nested deeper than a tensor's shape");
  if (!twice.empty()) refuse(path, fmt::format("name {} stands twice in the header", shown(twice)));
  if (!header.is_object()) refuse(path, "header is not a JSON object");
  return header;
}

DType dtype_of(const std::string& path, const std::string& name, const Json& value) {
  if (!value.is_string()) refuse(path, fmt::format("tensor {}: dtype is not a string", shown(name)));
  const auto& text = value.get_ref<const std::string&>();
  if (text == "F32") return DType::kF32;
  if (text == "F16") return DType::kF16;
  if (text == "BF16") return DType::kBF16;
  refuse(path, fmt::format("tensor {}: dtype {}, expected F32, F16 or BF16", shown(name), shown(text)));
}

std::vector<std::uint64_t> numbers(const std::string& path, const std::string& name, const char* key,
                                   const Json& value) {
  std::vector<std::uint64_t> out;
  bool good = value.is_array();
  if (good) {
    out.reserve(value.size());
    for (const Json& n : value) {
      good = good && n.is_number_unsigned();
      if (good) out.push_back(n.get<std::uint64_t>());
    }
  }
  if (!good) {
    refuse(path, fmt::format("tensor {}: {} is not a list of whole numbers from 0 up", shown(name), key));
  }
  return out;
}

// Size in bytes of a tensor; nothing when it does not fit 64 bits.
std::optional<Bytes> bytes_of(const std::vector<std::uint64_t>& shape, DType dtype) {
  if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) return 0;
  Bytes total = size_of(dtype);
  for (const std::uint64_t extent : shape) {
    if (__builtin_mul_overflow(total, extent, &total)) return std::nullopt;
  }
  return total;
}

SafetensorsTensor parse_tensor(const std::string& path, const std::string& name, const Json& value, Bytes data_bytes) {
  if (!value.is_object()) refuse(path, fmt::format("tensor {}: not a JSON object", shown(name)));
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!value.contains(key)) refuse(path, fmt::format("tensor {}: {} is missing", shown(name), key));
  }
  if (value.size() != 3) {
    refuse(path, fmt::format("tensor {}: has other keys than dtype, shape and data_offsets", shown(name)));
  }
  SafetensorsTensor out;
  out.name = name;
  out.dtype = dtype_of(path, name, value["dtype"]);
  out.shape = numbers(path, name, "shape", value["shape"]);
  const auto offsets = numbers(path, name, "data_offsets", value["data_offsets"]);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    refuse(path,
           fmt::format("tensor {}: data_offsets {}, expected [begin, end] with begin ≤ end", shown(name), offsets));
  }
  out.begin = offsets[0];
  out.end = offsets[1];
  if (out.end > data_bytes) {
    refuse(path, fmt::format("tensor {}: ends at byte {} of the data, the file has {} (cut short?)", shown(name),
                             out.end, data_bytes));
  }
  const auto expected = bytes_of(out.shape, out.dtype);
  if (!expected || *expected != out.end - out.begin) {
    refuse(path, fmt::format("tensor {}: data_offsets hold {} bytes, shape {} of {} takes {}", shown(name),
                             out.end - out.begin, out.shape, name_of(out.dtype),
                             expected ? fmt::format("{}", *expected) : "more than 2^64"));
  }
  return out;
}

void parse_metadata(const Json& value, SafetensorsFile& file) {
  if (!value.is_object()) refuse(file.path, "__metadata__ is not a JSON object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) refuse(file.path, fmt::format("__metadata__ {}: not a string", shown(key)));
    file.metadata.emplace_back(key, text.get<std::string>());
  }
}

// The tensors must tile the data: no overlap, no hole, nothing after the last.
void check_tiling(const SafetensorsFile& file, Bytes data_bytes) {
  std::vector<const SafetensorsTensor*> order;
  order.reserve(file.tensors.size());
  for (const auto& t : file.tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return a->begin != b->begin ? a->begin < b->begin : a->end < b->end; });
  Bytes at = 0;
  const SafetensorsTensor* previous = nullptr;
  for (const auto* t : order) {
    if (t->begin < at) {
      refuse(file.path, fmt::format("tensors {} and {} overlap at byte {} of the data", shown(previous->name),
                                    shown(t->name), t->begin));
    }
    if (t->begin > at) {
      refuse(file.path,
             fmt::format("{} bytes of the data before tensor {} belong to no tensor", t->begin - at, shown(t->name)));
    }
    at = t->end;
    previous = t;
  }
  if (at != data_bytes) {
    refuse(file.path, fmt::format("{} bytes after the last tensor belong to no tensor", data_bytes - at));
  }
}

std::string shape_text(const SafetensorsTensor& t) { return fmt::format("{}", t.shape); }

}  // namespace

SafetensorsFile parse_safetensors(const std::string& path, std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    refuse(path, fmt::format("{} bytes, a safetensors file begins with 8 bytes of header length", bytes.size()));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);  // little endian, as the machines that we run on
  if (header_bytes > kMostHeaderBytes) {
    refuse(path,
           fmt::format("header length {}, expected at most {} (no safetensors file?)", header_bytes, kMostHeaderBytes));
  }
  if (header_bytes > bytes.size() - kLengthBytes) {
    refuse(path, fmt::format("header length {}, the file has {} bytes after it (cut short?)", header_bytes,
                             bytes.size() - kLengthBytes));
  }
  SafetensorsFile file;
  file.path = path;
  file.header.assign(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, header_bytes);
  if (file.header.empty() || file.header.front() != '{') refuse(path, "header does not begin with {");
  const Json header = parse_header(path, file.header);
  const auto data = bytes.subspan(kLengthBytes + header_bytes);
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      parse_metadata(value, file);
    } else {
      file.tensors.push_back(parse_tensor(path, name, value, data.size()));
    }
  }
  check_tiling(file, data.size());
  file.data.assign(data.begin(), data.end());
  return file;
}

void check_same_layout(std::span<const SafetensorsFile> files) {
  for (std::size_t f = 1; f < files.size(); ++f) {
    const SafetensorsFile &a = files[0], &b = files[f];
    const auto differ = [&](const SafetensorsTensor& t, const char* what, const std::string& in_a,
                            const std::string& in_b) {
      throw InputError(fmt::format("{} and {}: tensor {} differs in {}: {} and {}", a.path, b.path, shown(t.name), what,
                                   in_a, in_b));
    };
    for (std::size_t i = 0; i < std::min(a.tensors.size(), b.tensors.size()); ++i) {
      const SafetensorsTensor &x = a.tensors[i], &y = b.tensors[i];
      if (x.name != y.name) {
        throw InputError(fmt::format("{} and {}: tensor number {} differs in name: {} and {}", a.path, b.path, i + 1,
                                     shown(x.name), shown(y.name)));
      }
      if (x.dtype != y.dtype) differ(x, "type", name_of(x.dtype), name_of(y.dtype));
      if (x.shape != y.shape) differ(x, "shape", shape_text(x), shape_text(y));
      if (x.begin != y.begin) differ(x, "offset", fmt::format("{}", x.begin), fmt::format("{}", y.begin));
    }
    if (a.tensors.size() != b.tensors.size()) {
      const SafetensorsFile& more = a.tensors.size() > b.tensors.size() ? a : b;
      const SafetensorsFile& less = a.tensors.size() > b.tensors.size() ? b : a;
      throw InputError(fmt::format("{} and {}: tensor {} is only in {}", a.path, b.path,
                                   shown(more.tensors[less.tensors.size()].name), more.path));
    }
  }
}

}  // namespace lk
