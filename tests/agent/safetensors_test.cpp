// Safetensors: the real gradients read right (figures of tests/data/gradients, made with PyTorch and numpy), and every
// way to damage a file gives one line and no crash.
#include "agent/safetensors.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dataplane/base/error.hpp"
#include "dataplane/base/random.hpp"
#include "dataplane/reduce/reference.hpp"

namespace {

namespace fs = std::filesystem;

std::string gradient(int rank, const char* type) {
  char name[200];
  std::snprintf(name, sizeof name, "%s/tests/data/gradients/digits-cnn-rank%02d%s.safetensors", LK_SOURCE_DIR, rank,
                type);
  return name;
}

std::vector<std::byte> file_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  BOOST_REQUIRE_MESSAGE(in.good(), path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::byte> out(text.size());
  std::memcpy(out.data(), text.data(), text.size());
  return out;
}

std::vector<std::byte> made(const std::string& header, std::size_t data_bytes) {
  std::vector<std::byte> out(8 + header.size() + data_bytes, std::byte{7});
  const std::uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  std::memcpy(out.data() + 8, header.data(), header.size());
  return out;
}

// A folder of its own that goes away with the test.
struct Folder {
  Folder() {
    char name[] = "/tmp/lk-safetensors-XXXXXX";
    BOOST_REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
  fs::path path;
};

bool one_line_with(const std::exception& e, const std::string& part) {
  const std::string text = e.what();
  BOOST_TEST_MESSAGE(text);
  return text.find(part) != std::string::npos && text.find('\n') == std::string::npos;
}

void refuses(const std::string& header, std::size_t data_bytes, const std::string& part) {
  BOOST_CHECK_EXCEPTION(
      lk::parse_safetensors("x.safetensors", made(header, data_bytes)), lk::InputError,
      [&](const lk::InputError& e) { return one_line_with(e, "x.safetensors: ") && one_line_with(e, part); });
}

const char* const kSmall =
    R"({"__metadata__":{"format":"pt","step":"7"},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("a":{"dtype":"BF16","shape":[],"data_offsets":[16,18]},"none":{"dtype":"F16","shape":[3,0],"data_offsets":[18,18]}}  )";

// A file that is there, and other bytes that would take its place.
struct Written {
  Written() {
    lk::write_safetensors(target, file, file.data);
    before = file_bytes(target);
    changed = file.data;
    changed[0] ^= std::byte{1};
  }
  Folder folder;
  lk::SafetensorsFile file = lk::read_safetensors(gradient(0, ""));
  std::string target = folder.path / "out.safetensors";
  decltype(file_bytes({})) before;
  decltype(file.data) changed;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(safetensors)

BOOST_AUTO_TEST_CASE(real_gradients_sum_to_their_known_figures) {
  std::ifstream in(std::string(LK_SOURCE_DIR) + "/tests/data/gradients/digits-cnn.expect.json");
  const auto expected = nlohmann::json::parse(in);
  std::vector<lk::SafetensorsFile> files;
  files.reserve(16);
  for (int rank = 0; rank < expected["ranks"].get<int>(); ++rank)
    files.push_back(lk::read_safetensors(gradient(rank, "")));
  BOOST_CHECK_NO_THROW(lk::check_same_layout(files));
  const std::size_t count = expected["elements"];
  BOOST_REQUIRE_EQUAL(files[0].data.size(), count * 4);
  BOOST_TEST(files[0].tensors.size() == 8U);
  BOOST_TEST(files[0].tensors[2].name == "2.weight.grad");
  BOOST_TEST((files[0].tensors[2].shape == std::vector<std::uint64_t>{48, 24, 3, 3}));

  std::vector<double> sums(count, 0.0);
  std::vector<const std::byte*> inputs;
  std::vector<std::vector<std::size_t>> domains(2);
  for (std::size_t r = 0; r < files.size(); ++r) {
    inputs.push_back(files[r].data.data());
    domains[r / 8].push_back(r);
    for (std::size_t i = 0; i < count; ++i) {
      float value = 0;
      std::memcpy(&value, files[r].data.data() + i * 4, 4);
      sums[i] += value;
    }
  }
  double total = 0, total_abs = 0;
  for (const double s : sums) total += s, total_abs += std::fabs(s);
  for (std::size_t i = 0; i < 5; ++i) BOOST_CHECK_CLOSE(sums[i], expected["sum_first5_f64"][i].get<double>(), 1e-9);
  BOOST_CHECK_CLOSE(total, expected["sum_f64"].get<double>(), 1e-7);
  BOOST_CHECK_CLOSE(total_abs, expected["sum_abs_f64"].get<double>(), 1e-9);

  std::vector<std::byte> reduced(count * 4);
  lk::reference_all_reduce(lk::DType::kF32, lk::RedOp::kSum, count, domains, inputs, reduced.data());
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, reduced.data() + i * 4, 4);
    worst = std::max(worst, std::fabs(value - sums[i]));
  }
  BOOST_TEST(worst < 1e-6);  // gradients below 1: sixteen roundings of 2^-24
}

BOOST_AUTO_TEST_CASE(other_types_read_and_write_back_to_the_same_bytes) {
  const Folder folder;
  for (const char* type : {"", ".f16", ".bf16"}) {
    for (int rank = 0; rank < 4; ++rank) {
      const auto file = lk::read_safetensors(gradient(rank, type));
      const fs::path copy = folder.path / "copy.safetensors";
      lk::write_safetensors(copy, file, file.data);
      BOOST_TEST((file_bytes(copy) == file_bytes(gradient(rank, type))));
    }
  }
  BOOST_TEST(folder.files() == 1U);
}

BOOST_AUTO_TEST_CASE(keeps_order_shapes_and_metadata) {
  const auto file = lk::parse_safetensors("x", made(kSmall, 18));
  BOOST_TEST(file.header == kSmall);
  BOOST_REQUIRE(file.metadata.size() == 2U);
  BOOST_TEST(file.metadata[1].first == "step");
  BOOST_TEST(file.metadata[1].second == "7");
  BOOST_REQUIRE(file.tensors.size() == 3U);
  BOOST_TEST(file.tensors[0].name == "b");
  BOOST_TEST(file.tensors[1].elements() == 1U);
  BOOST_TEST((file.tensors[1].dtype == lk::DType::kBF16));
  BOOST_TEST(file.tensors[2].elements() == 0U);
  BOOST_TEST(lk::parse_safetensors("x", made("{}", 0)).tensors.empty());
}

BOOST_AUTO_TEST_CASE(a_file_cut_at_any_byte_is_refused) {
  const auto whole = made(kSmall, 18);
  BOOST_CHECK_NO_THROW(lk::parse_safetensors("x", whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    BOOST_CHECK_THROW(lk::parse_safetensors("x", std::span(whole).first(length)), lk::InputError);
  }
}

BOOST_AUTO_TEST_CASE(a_damaged_file_is_read_or_refused_in_one_line) {
  const auto whole = made(kSmall, 18);
  const std::string alphabet = "{}[]\":,0123456789-.eE\\ uF\xff\x01";
  lk::Random random(29);
  int refused = 0, read = 0;
  for (int k = 0; k < 4000; ++k) {
    auto bytes = whole;
    for (std::uint64_t n = 1 + random.below(3); n > 0; --n) {
      const std::size_t at = random.below(bytes.size());
      bytes[at] = random.chance(0.7) ? static_cast<std::byte>(alphabet[random.below(alphabet.size())])
                                     : static_cast<std::byte>(random.next());
      if (random.chance(0.2)) bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(random.below(bytes.size())));
    }
    try {
      const auto file = lk::parse_safetensors("x", bytes);
      for (const auto& t : file.tensors) BOOST_REQUIRE(t.begin <= t.end && t.end <= file.data.size());
      ++read;
    } catch (const lk::InputError& e) {
      if (std::strchr(e.what(), '\n') != nullptr) BOOST_ERROR("more than one line: " << e.what());
      ++refused;
    }
  }
  BOOST_TEST(read > 0);
  BOOST_TEST(refused > 1000);
}

BOOST_AUTO_TEST_CASE(says_what_is_wrong) {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  refuses("", 0, "does not begin with {");
  refuses("[]", 0, "does not begin with {");
  refuses("{", 0, "no JSON at byte");
  refuses(R"({"w":)" + std::string(2000, '[') + std::string(2000, ']') + "}", 0, "nested deeper");
  refuses(tensor("\"I64\"", "[1]", "[0,8]"), 8, R"(tensor "w": dtype "I64", expected F32, F16 or BF16)");
  refuses(tensor("3", "[1]", "[0,4]"), 4, "dtype is not a string");
  refuses(tensor("\"F32\"", "[-1]", "[0,4]"), 4, "shape is not a list");
  refuses(tensor("\"F32\"", "[1.0]", "[0,4]"), 4, "shape is not a list");
  refuses(tensor("\"F32\"", "4", "[0,4]"), 4, "shape is not a list");
  refuses(tensor("\"F32\"", "[1]", "[4,0]"), 4, "begin ≤ end");
  refuses(tensor("\"F32\"", "[1]", "[0]"), 4, "begin ≤ end");
  refuses(tensor("\"F32\"", "[2]", "[0,8]"), 4, "ends at byte 8 of the data, the file has 4");
  refuses(tensor("\"F32\"", "[2]", "[0,4]"), 4, "hold 4 bytes, shape [2] of f32 takes 8");
  refuses(tensor("\"F32\"", "[4611686018427387904]", "[0,0]"), 0, "takes more than 2^64");
  refuses(tensor("\"F32\"", "[1]", "[4,8]"), 8, "4 bytes of the data before tensor \"w\"");
  refuses(tensor("\"F32\"", "[1]", "[0,4]"), 6, "2 bytes after the last tensor");
  refuses(R"({"w":{"dtype":"F32","shape":[]}})", 0, "data_offsets is missing");
  refuses(R"({"w":{"dtype":"F32","shape":[],"data_offsets":[0,4],"x":1}})", 4, "other keys");
  refuses(R"({"w":1})", 0, "not a JSON object");
  refuses(R"({"__metadata__":{"a":1}})", 0, "not a string");
  refuses(R"({"__metadata__":[]})", 0, "__metadata__ is not a JSON object");
  const std::string one = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  refuses("{" + one + "," + one + "}", 4, "name \"w\" stands twice");
  refuses("{" + one + R"(,"v":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})", 4,
          "tensors \"w\" and \"v\" overlap");
  refuses(R"({"a\nb":1})", 0, R"(tensor "a\x0ab")");
  auto long_header = made("{}", 0);
  long_header[6] = std::byte{1};
  BOOST_CHECK_EXCEPTION(lk::parse_safetensors("x", long_header), lk::InputError,
                        [](const auto& e) { return one_line_with(e, "expected at most 100000000"); });
}

BOOST_AUTO_TEST_CASE(names_both_files_and_what_differs) {
  const auto file = [](const char* path, const std::string& text) {
    return lk::parse_safetensors(path, made("{" + text + "}", 4));
  };
  const auto differs = [&](const std::string& a, const std::string& b, const std::string& part) {
    const lk::SafetensorsFile files[] = {file("r0", a), file("r1", a), file("r2", b)};
    BOOST_CHECK_EXCEPTION(lk::check_same_layout(files), lk::InputError,
                          [&](const auto& e) { return one_line_with(e, "r0 and r2: " + part); });
  };
  const std::string w = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  differs(w, R"("v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})",
          R"(tensor number 1 differs in name: "w" and "v")");
  differs(w, R"("w":{"dtype":"F16","shape":[2],"data_offsets":[0,4]})", R"(tensor "w" differs in type: f32 and f16)");
  differs(w, R"("w":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]})",
          R"(tensor "w" differs in shape: [1] and [1, 1])");
  differs(w, w + R"(,"z":{"dtype":"F32","shape":[0],"data_offsets":[4,4]})", R"(tensor "z" is only in r2)");
}

BOOST_AUTO_TEST_CASE(a_full_disk_leaves_nothing_behind) {
  const Written w;

  struct rlimit old {};
  BOOST_REQUIRE_EQUAL(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit low = old;
  low.rlim_cur = 100'000;  // the kernel then refuses as it does on a full disk, with EFBIG
  BOOST_REQUIRE_EQUAL(::setrlimit(RLIMIT_FSIZE, &low), 0);
  BOOST_CHECK_EXCEPTION(lk::write_safetensors(w.target, w.file, w.changed), lk::SystemError,
                        [&](const auto& e) { return one_line_with(e, w.target + ": cannot be written"); });
  BOOST_CHECK_THROW(lk::write_safetensors(w.target + "2", w.file, w.changed), lk::SystemError);
  ::setrlimit(RLIMIT_FSIZE, &old);
  ::signal(SIGXFSZ, handler);
  BOOST_TEST(w.folder.files() == 1U);
  BOOST_TEST((file_bytes(w.target) == w.before));
}

BOOST_AUTO_TEST_CASE(what_is_not_put_in_place_changes_nothing) {
  const Written w;
  {
    const lk::NewSafetensors left(w.target, w.file, w.changed);
    BOOST_TEST(w.folder.files() == 2U);
    BOOST_TEST((file_bytes(w.target) == w.before));
  }
  BOOST_TEST(w.folder.files() == 1U);
  BOOST_TEST((file_bytes(w.target) == w.before));
  lk::NewSafetensors(w.target, w.file, w.changed).put_in_place();
  BOOST_TEST(w.folder.files() == 1U);
  BOOST_TEST((lk::read_safetensors(w.target).data == w.changed));
}

BOOST_AUTO_TEST_CASE(places_that_are_no_files_are_refused) {
  const Folder folder;
  const auto file = lk::parse_safetensors("x", made("{}", 0));
  const auto part = [](const char* text) { return [text](const auto& e) { return one_line_with(e, text); }; };
  BOOST_CHECK_EXCEPTION(lk::read_safetensors(folder.path / "none"), lk::InputError,
                        part("none: cannot be opened: No such"));
  BOOST_CHECK_EXCEPTION(lk::read_safetensors(folder.path), lk::InputError, part("not a regular file"));
  BOOST_CHECK_EXCEPTION(lk::write_safetensors("/dev/full", file, {}), lk::InputError,
                        part("/dev/full: exists and is not"));
  BOOST_CHECK_EXCEPTION(lk::write_safetensors(folder.path / "no" / "x", file, {}), lk::InputError,
                        part("cannot be created: No such"));
  const std::string pipe = folder.path / "pipe";
  BOOST_REQUIRE_EQUAL(::mkfifo(pipe.c_str(), 0600), 0);
  BOOST_CHECK_EXCEPTION(lk::read_safetensors(pipe), lk::InputError, part("not a regular file"));
}

BOOST_AUTO_TEST_SUITE_END()
