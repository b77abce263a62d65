// lanectl: see lanectl.hpp.
#include <cstdio>

#include "agent/cli/lanectl.hpp"

int main(int count, char** words) {
  const lk::LanectlResult r = lk::lanectl(std::vector<std::string>(words + 1, words + count));
  std::fputs(r.error.c_str(), stderr);
  const bool written = std::fputs(r.out.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (!written) std::perror("lanectl: standard output");
  return written || r.code != 0 ? r.code : 1;
}
