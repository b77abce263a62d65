// How a config value is written and read: durations "50ms", sizes "1MiB", counts, fractions, words, lists of cores.
// One place, so that a file, a command line and `lanectl show config` agree. Any thread. parse_* return nothing for a
// text that is not such a value; the caller knows the key and says what was expected.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/units.hpp"

namespace lk {

using CoreList = std::vector<unsigned>;  // ascending, each once; empty: the agent chooses

// A number with a unit: ns, us, ms, s, min. "1.5ms" is good, "50" is not.
std::optional<Nanos> parse_span(std::string_view text);
// A whole number with a unit: B, KiB, MiB, GiB.
std::optional<Bytes> parse_size(std::string_view text);
// "0,2-3", as the kernel writes lists.
std::optional<CoreList> parse_cores(std::string_view text);

// In the largest unit that needs at most three decimals; the same value comes back from parse_span.
std::string span_text(Nanos span);
std::string size_text(Bytes size);
std::string cores_text(const CoreList& cores);

// The word of `known` that is nearest to `word` by edits; empty when none is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

}  // namespace lk
