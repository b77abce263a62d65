// Errors of set-up: typed, thrown, never on the data path. Each carries one line that names what, where and what was
// expected. `check` guards invariants of our own code: it aborts with a message; hardware failing is never one.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace lk {

// Bad input from a person or a file. what() is one line: place, key or row, what was expected.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The system refused a call. what() has the call, its values and the reason.
class SystemError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void broken_invariant(const char* text, const char* file, int line) noexcept {
  std::fprintf(stderr, "lanekeeper: broken invariant at %s:%d: %s\n", file, line, text);
  std::abort();
}

}  // namespace lk

#define LK_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::lk::broken_invariant(#condition, __FILE__, __LINE__))
