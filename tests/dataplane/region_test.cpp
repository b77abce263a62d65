// Region: that the kernel really refuses to shrink it, and that whatever could shrink is refused.
#include "dataplane/memory/region.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <string>

#include "dataplane/base/error.hpp"

namespace {

lk::UniqueFd memfd(off_t bytes, int seals) {
  lk::UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  BOOST_REQUIRE(fd);
  BOOST_REQUIRE_EQUAL(::ftruncate(fd.get(), bytes), 0);
  BOOST_REQUIRE_EQUAL(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

void adopt(lk::UniqueFd& fd, lk::Bytes size) { lk::Region::adopt(lk::UniqueFd(fd.release()), size); }

void refuses(lk::UniqueFd fd, lk::Bytes size, const std::string& reason) {
  BOOST_CHECK_EXCEPTION(adopt(fd, size), lk::InputError, [&](const lk::InputError& e) {
    const std::string text = e.what();
    BOOST_TEST_MESSAGE(text);
    return text.find(reason) != std::string::npos && text.find('\n') == std::string::npos;
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(region)

BOOST_AUTO_TEST_CASE(created_memory_is_zero_whole_pages_and_cannot_change_size) {
  const lk::Region region = lk::Region::create("lk-test", 5000);
  BOOST_TEST(region.size() == 8192U);
  for (lk::Bytes i = 0; i < region.size(); ++i) BOOST_REQUIRE(region.data()[i] == std::byte{0});
  BOOST_TEST(::ftruncate(region.fd(), 4096) == -1);
  BOOST_TEST(errno == EPERM);
  BOOST_TEST(::ftruncate(region.fd(), 16384) == -1);
  BOOST_TEST(::fcntl(region.fd(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
  BOOST_TEST((::fcntl(region.fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

BOOST_AUTO_TEST_CASE(adopted_memory_is_the_same_memory) {
  const lk::Region ours = lk::Region::create("lk-test", 4096);
  const lk::Region theirs = lk::Region::adopt(lk::UniqueFd(::dup(ours.fd())), 4096);
  BOOST_TEST(theirs.data() != ours.data());
  std::memcpy(ours.data() + 100, "shard", 5);
  BOOST_TEST(std::memcmp(theirs.data() + 100, "shard", 5) == 0);
}

BOOST_AUTO_TEST_CASE(moving_keeps_the_mapping) {
  lk::Region first = lk::Region::create("lk-test", 4096);
  std::byte* const data = first.data();
  lk::Region second = std::move(first);
  BOOST_TEST(second.data() == data);
  first = std::move(second);
  BOOST_TEST(first.data() == data);
  first.data()[0] = std::byte{1};
}

BOOST_AUTO_TEST_CASE(refuses_what_could_shrink) {
  refuses(memfd(4096, 0), 4096, "F_SEAL_SHRINK");
  refuses(memfd(4096, F_SEAL_GROW), 4096, "F_SEAL_SHRINK");
  char path[] = "/tmp/lk-region-XXXXXX";
  lk::UniqueFd file(::mkstemp(path));
  ::unlink(path);
  BOOST_REQUIRE_EQUAL(::ftruncate(file.get(), 4096), 0);
  BOOST_CHECK_THROW(adopt(file, 4096), lk::InputError);  // a file system may know no seals
}

BOOST_AUTO_TEST_CASE(refuses_what_is_no_memory) {
  int ends[2];
  BOOST_REQUIRE_EQUAL(::pipe(ends), 0);
  const lk::UniqueFd other(ends[1]);
  refuses(lk::UniqueFd(ends[0]), 4096, "not a memfd");
  refuses(lk::UniqueFd(), 4096, "not open");
}

BOOST_AUTO_TEST_CASE(refuses_another_size) {
  refuses(memfd(8192, F_SEAL_SHRINK), 4096, "expected 4096 bytes");
  refuses(memfd(4096, F_SEAL_SHRINK), 8192, "4096 bytes, expected 8192 bytes");
  refuses(memfd(0, F_SEAL_SHRINK), 0, "0 bytes");
}

BOOST_AUTO_TEST_CASE(refuses_memory_that_it_cannot_write) {
  refuses(memfd(4096, F_SEAL_SHRINK | F_SEAL_WRITE), 4096, "sealed against writing");
  const lk::UniqueFd writable = memfd(4096, F_SEAL_SHRINK);
  const std::string path = "/proc/self/fd/" + std::to_string(writable.get());
  refuses(lk::UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), 4096, "for reading only");
}

BOOST_AUTO_TEST_CASE(a_size_that_makes_no_sense_is_refused) {
  BOOST_CHECK_THROW(lk::Region::create("lk-test", 0), lk::InputError);
  BOOST_CHECK_THROW(lk::Region::create("lk-test", UINT64_MAX), lk::InputError);
}

BOOST_AUTO_TEST_SUITE_END()
