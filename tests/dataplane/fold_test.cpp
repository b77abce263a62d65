// fold against the slow reference of the tests, and both against bits that numpy worked out (tests/data/arith).
#include "dataplane/reduce/fold.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dataplane/base/random.hpp"
#include "dataplane/reduce/half.hpp"
#include "dataplane/reduce/reference.hpp"
#include "tests/dataplane/reference.hpp"

namespace {

using lk::DType;
using lk::FoldRounding;
using lk::RedOp;
using Buffer = std::vector<std::byte>;
using Domains = std::vector<std::vector<std::size_t>>;

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

nlohmann::json vectors(const char* name) {
  std::ifstream in(std::string(LK_SOURCE_DIR) + "/tests/data/arith/" + name);
  BOOST_REQUIRE_MESSAGE(in.good(), name);
  return nlohmann::json::parse(in);
}

DType dtype_named(const std::string& name) {
  for (const DType t : kTypes) {
    if (name == lk::name_of(t)) return t;
  }
  BOOST_FAIL("unknown type " << name);
  return DType::kF32;
}

Buffer buffer_of(DType t, const std::vector<std::uint32_t>& bits) {
  Buffer out(bits.size() * size_of(t));
  for (std::size_t i = 0; i < bits.size(); ++i) lk::reference::store(t, out.data(), i, bits[i]);
  return out;
}

// Half of the values of a size near 1, so that sums round and cancel; the others any bits: NaN, infinite, denormal.
std::uint32_t random_bits(DType t, lk::Random& random) {
  const lk::reference::Format f = lk::reference::format_of(t);
  if (random.chance(0.5)) return static_cast<std::uint32_t>(random.next()) & (2 * f.sign_bit() - 1);
  const auto low = static_cast<std::uint32_t>(random.next()) & ((1U << f.mantissa_bits) - 1);
  const auto exponent = static_cast<std::uint32_t>(f.bias() - 8 + random.below(12));
  return (random.chance(0.5) ? f.sign_bit() : 0) | exponent << f.mantissa_bits | low;
}

std::vector<Buffer> random_buffers(DType t, std::size_t ranks, std::size_t count, lk::Random& random) {
  std::vector<Buffer> out;
  for (std::size_t r = 0; r < ranks; ++r) {
    Buffer b(count * size_of(t));
    for (std::size_t i = 0; i < count; ++i) lk::reference::store(t, b.data(), i, random_bits(t, random));
    out.push_back(std::move(b));
  }
  return out;
}

std::vector<const std::byte*> pointers_to(const std::vector<Buffer>& buffers) {
  std::vector<const std::byte*> out;
  out.reserve(buffers.size());
  for (const Buffer& b : buffers) out.push_back(b.data());
  return out;
}

// Two levels of fold() as the collectives use them.
Buffer fold_domains(DType t, RedOp op, std::size_t count, const Domains& domains, const std::vector<Buffer>& inputs) {
  const auto last = FoldRounding::last(op, static_cast<std::uint32_t>(inputs.size()));
  std::vector<Buffer> partials;
  for (const auto& domain : domains) {
    std::vector<const std::byte*> in;
    in.reserve(domain.size());
    for (const std::size_t rank : domain) in.push_back(inputs[rank].data());
    partials.emplace_back(count * size_of(t));
    lk::fold(t, in, count, domains.size() == 1 ? last : FoldRounding::partial(), partials.back().data());
  }
  if (domains.size() == 1) return partials[0];
  Buffer out(count * size_of(t));
  lk::fold(t, pointers_to(partials), count, last, out.data());
  return out;
}

// Boost's own message would print whole buffers.
void require_same(DType t, const Buffer& got, const Buffer& expected, const std::string& where) {
  BOOST_REQUIRE_EQUAL(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size() / size_of(t); ++i) {
    const std::uint32_t a = lk::reference::load(t, got.data(), i), b = lk::reference::load(t, expected.data(), i);
    if (a != b) BOOST_FAIL(lk::name_of(t) << ' ' << where << ": element " << i << " is " << a << ", expected " << b);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fold)

BOOST_AUTO_TEST_CASE(conversions_match_numpy) {
  const nlohmann::json rows = vectors("convert.json");
  BOOST_REQUIRE_GT(rows.size(), 1000U);
  for (const auto& row : rows) {
    const auto bits = row[0].get<std::uint32_t>();
    const auto f16 = row[1].get<std::uint32_t>(), bf16 = row[2].get<std::uint32_t>();
    const double value = lk::reference::decode(DType::kF32, bits);
    BOOST_REQUIRE_EQUAL(lk::reference::encode(DType::kF16, value), f16);
    BOOST_REQUIRE_EQUAL(lk::reference::encode(DType::kBF16, value), bf16);
    BOOST_REQUIRE_EQUAL(lk::f16_from_f32(std::bit_cast<float>(bits)), f16);
    BOOST_REQUIRE_EQUAL(lk::bf16_from_f32(std::bit_cast<float>(bits)), bf16);
  }
}

BOOST_AUTO_TEST_CASE(all_patterns_of_two_bytes_round_trip) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto cell = static_cast<std::uint16_t>(bits);
    const float f16 = lk::f32_from_f16(cell), bf16 = lk::f32_from_bf16(cell);
    const double expected_f16 = lk::reference::decode(DType::kF16, bits);
    const double expected_bf16 = lk::reference::decode(DType::kBF16, bits);
    if (std::isnan(expected_f16)) {
      BOOST_REQUIRE(std::isnan(f16));
      BOOST_REQUIRE_EQUAL(lk::f16_from_f32(f16), lk::kQuietNanF16);
    } else {
      BOOST_REQUIRE_EQUAL(std::bit_cast<std::uint64_t>(double{f16}), std::bit_cast<std::uint64_t>(expected_f16));
      BOOST_REQUIRE_EQUAL(lk::f16_from_f32(f16), cell);
    }
    if (std::isnan(expected_bf16)) {
      BOOST_REQUIRE_EQUAL(lk::bf16_from_f32(bf16), lk::kQuietNanBf16);
    } else {
      BOOST_REQUIRE_EQUAL(std::bit_cast<std::uint64_t>(double{bf16}), std::bit_cast<std::uint64_t>(expected_bf16));
      BOOST_REQUIRE_EQUAL(lk::bf16_from_f32(bf16), cell);
    }
  }
}

BOOST_AUTO_TEST_CASE(sums_match_numpy) {
  const nlohmann::json cases = vectors("all_reduce.json");
  BOOST_REQUIRE_EQUAL(cases.size(), 48U);
  for (const auto& row : cases) {
    const DType t = dtype_named(row["dtype"]);
    const RedOp op = row["op"] == "avg" ? RedOp::kAvg : RedOp::kSum;
    const auto domains = row["domains"].get<Domains>();
    const auto expected = buffer_of(t, row["expected"].get<std::vector<std::uint32_t>>());
    std::vector<Buffer> inputs;
    for (const auto& rank : row["inputs"]) inputs.push_back(buffer_of(t, rank.get<std::vector<std::uint32_t>>()));
    const std::size_t count = row["expected"].size();

    Buffer ours(expected.size()), product(expected.size());
    lk::reference::all_reduce(t, op, count, domains, pointers_to(inputs), ours.data());
    lk::reference_all_reduce(t, op, count, domains, pointers_to(inputs), product.data());
    require_same(t, ours, expected, "test reference");
    require_same(t, product, expected, "product reference");
    require_same(t, fold_domains(t, op, count, domains, inputs), expected, "fold");
  }
}

BOOST_AUTO_TEST_CASE(agrees_with_both_references_on_random_values) {
  lk::Random random(7);
  const Domains shapes[] = {{{0}},
                            {{0, 1, 2}},
                            {{0}, {1}, {2}},
                            {{0, 1, 2, 3}, {4, 5, 6, 7}},
                            {{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14}}};
  for (const DType t : kTypes) {
    for (const Domains& domains : shapes) {
      for (const RedOp op : {RedOp::kSum, RedOp::kAvg}) {
        std::size_t ranks = 0;
        for (const auto& d : domains) ranks += d.size();
        const std::size_t count = 300 + random.below(100);
        const auto inputs = random_buffers(t, ranks, count, random);
        Buffer expected(count * size_of(t)), product(count * size_of(t));
        lk::reference::all_reduce(t, op, count, domains, pointers_to(inputs), expected.data());
        lk::reference_all_reduce(t, op, count, domains, pointers_to(inputs), product.data());
        require_same(t, product, expected, "product reference");
        require_same(t, fold_domains(t, op, count, domains, inputs), expected, "fold");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(any_count_writes_its_elements_and_no_more) {
  lk::Random random(11);
  for (const DType t : kTypes) {
    const auto inputs = random_buffers(t, 3, 80, random);
    for (std::size_t count = 0; count <= 80; ++count) {
      Buffer out(80 * size_of(t), std::byte{0xa5});
      Buffer expected = out;
      lk::fold(t, pointers_to(inputs), count, FoldRounding::partial(), out.data());
      lk::reference::all_reduce(t, RedOp::kSum, count, {{0, 1, 2}}, pointers_to(inputs), expected.data());
      require_same(t, out, expected, "count " + std::to_string(count));
    }
  }
}

BOOST_AUTO_TEST_CASE(buffers_need_no_alignment) {
  lk::Random random(13);
  for (const DType t : kTypes) {
    const auto inputs = random_buffers(t, 2, 70, random);
    Buffer expected(70 * size_of(t));
    lk::reference::all_reduce(t, RedOp::kSum, 70, {{0, 1}}, pointers_to(inputs), expected.data());
    for (std::size_t shift = 0; shift < 8; ++shift) {
      std::vector<Buffer> moved(2, Buffer(71 * 4 + 8));
      std::vector<const std::byte*> in;
      for (std::size_t r = 0; r < 2; ++r) {
        const std::size_t at = (shift + 3 * r) % 8;
        std::memcpy(moved[r].data() + at, inputs[r].data(), inputs[r].size());
        in.push_back(moved[r].data() + at);
      }
      Buffer out(expected.size() + 8);
      lk::fold(t, in, 70, FoldRounding::final_sum(), out.data() + shift);
      const Buffer got(out.begin() + static_cast<std::ptrdiff_t>(shift),
                       out.begin() + static_cast<std::ptrdiff_t>(shift + expected.size()));
      require_same(t, got, expected, "shift " + std::to_string(shift));
    }
  }
}

BOOST_AUTO_TEST_CASE(out_may_be_any_one_input) {
  lk::Random random(17);
  for (const DType t : kTypes) {
    const auto inputs = random_buffers(t, 4, 131, random);
    Buffer expected(131 * size_of(t));
    lk::reference::all_reduce(t, RedOp::kAvg, 131, {{0, 1, 2, 3}}, pointers_to(inputs), expected.data());
    for (std::size_t target = 0; target < 4; ++target) {
      auto copies = inputs;
      lk::fold(t, pointers_to(copies), 131, FoldRounding::final_avg(4), copies[target].data());
      require_same(t, copies[target], expected, "target " + std::to_string(target));
    }
  }
}

BOOST_AUTO_TEST_CASE(one_input_is_itself_with_its_nan_made_canonical) {
  for (const DType t : {DType::kF16, DType::kBF16}) {
    std::vector<std::uint32_t> all(0x10000);
    for (std::uint32_t i = 0; i < 0x10000U; ++i) all[i] = i;
    const Buffer in = buffer_of(t, all);
    auto expected_bits = all;
    const lk::reference::Format f = lk::reference::format_of(t);
    for (auto& bits : expected_bits) {
      if ((bits & (f.sign_bit() - 1)) > f.infinity()) bits = f.quiet_nan();
    }
    Buffer out(in.size());
    const std::byte* pointer = in.data();
    lk::fold(t, {&pointer, 1}, all.size(), FoldRounding::partial(), out.data());
    require_same(t, out, buffer_of(t, expected_bits), "every pattern");
  }
}

// By hand, so that the test reference cannot share a misreading: the bits come from IEEE 754.
BOOST_AUTO_TEST_CASE(corner_values_of_f32) {
  struct Row {
    std::uint32_t a, b, sum;
  };
  const Row rows[] = {
      {0x80000000, 0x80000000, 0x80000000},  // −0 + −0 = −0
      {0x80000000, 0x00000000, 0x00000000},  // −0 + 0 = 0
      {0x7f800000, 0xff800000, 0x7fc00000},  // inf − inf; x86 gives a NaN with its sign set
      {0x7f800001, 0x3f800000, 0x7fc00000},  // a signalling NaN
      {0xffc12345, 0x3f800000, 0x7fc00000},  // a payload and a sign
      {0x00000001, 0x00000001, 0x00000002},  // least denormals
      {0x00800000, 0x80000001, 0x007fffff},  // a result that is denormal
      {0x7f7fffff, 0x73000000, 0x7f800000},  // half a last place above the greatest: even is infinity
      {0x4b800000, 0x3f800000, 0x4b800000},  // 2^24 + 1: tie to even, down
      {0x4b800001, 0x3f800000, 0x4b800002},  // 2^24 + 2 + 1: tie to even, up
  };
  for (const Row& row : rows) {
    const Buffer a = buffer_of(DType::kF32, {row.a}), b = buffer_of(DType::kF32, {row.b});
    const std::byte* in[] = {a.data(), b.data()};
    Buffer out(4);
    lk::fold(DType::kF32, in, 1, FoldRounding::final_sum(), out.data());
    BOOST_TEST(lk::reference::load(DType::kF32, out.data(), 0) == row.sum);
  }
}

// f16: 2048 + 1 + 1 + 1 is 2051 in f32, rounded once to 2052; rounding after each step would give 2048.
BOOST_AUTO_TEST_CASE(rounds_once_a_fold) {
  const std::uint32_t big = 0x6800, one = 0x3c00;
  std::vector<Buffer> in{buffer_of(DType::kF16, {big})};
  for (int k = 0; k < 3; ++k) in.push_back(buffer_of(DType::kF16, {one}));
  Buffer out(2);
  lk::fold(DType::kF16, pointers_to(in), 1, FoldRounding::final_sum(), out.data());
  BOOST_TEST(lk::reference::load(DType::kF16, out.data(), 0) == 0x6802U);
}

BOOST_AUTO_TEST_CASE(takes_128_inputs) {
  lk::Random random(19);
  for (const DType t : kTypes) {
    const auto inputs = random_buffers(t, lk::kMaxFoldInputs, 40, random);
    Domains domains(1);
    for (std::size_t r = 0; r < inputs.size(); ++r) domains[0].push_back(r);
    Buffer expected(40 * size_of(t)), out(40 * size_of(t));
    lk::reference::all_reduce(t, RedOp::kAvg, 40, domains, pointers_to(inputs), expected.data());
    lk::fold(t, pointers_to(inputs), 40, FoldRounding::final_avg(128), out.data());
    require_same(t, out, expected, "128 inputs");
  }
}

BOOST_AUTO_TEST_SUITE_END()
