// Any bytes as a topology capture: a reading that can be written down, or one line of InputError.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "control/topology/capture.hpp"
#include "dataplane/base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto topology = lk::parse_capture({reinterpret_cast<const char*>(data), size}, "fuzz");
    (void)lk::reading_to_json(topology).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } catch (const lk::InputError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return 0;
}
