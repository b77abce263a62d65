#include "agent/commands.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "agent/command_table.hpp"
#include "dataplane/base/error.hpp"

namespace lk {

using nlohmann::json;

const std::vector<Commands::Row>& Commands::rows() {
  static const std::vector<Row> kRows = {
      {"status", &Commands::status},
      {"show topology", &Commands::topology},
      {"show links", &Commands::links},
      {"show lanes", &Commands::lanes},
      {"show trunks", &Commands::trunks},
      {"show cores", &Commands::cores},
      {"show pollers", &Commands::pollers},
      {"show ops", &Commands::ops},
      {"show groups", &Commands::groups},
      {"show counters", &Commands::counters},
      {"show faults", &Commands::faults},
      {"show events", &Commands::events},
      {"show config", &Commands::config},
      {"explain", &Commands::explain},
      {"drain", &Commands::drain},
      {"undrain", &Commands::undrain},
      {"set-weight", &Commands::set_weight},
      {"off", &Commands::off},
      {"on", &Commands::on},
      {"rebalance", &Commands::rebalance},
      {"inject", &Commands::inject},
      {"clear", &Commands::clear},
      {"version", &Commands::version},
  };
  return kRows;
}

std::vector<std::string_view> Commands::names() {
  std::vector<std::string_view> names;
  for (const Row& r : rows()) names.push_back(r.name);
  return names;
}

namespace {

std::string word(const json& args, std::string_view name) {
  const auto found = args.find(std::string(name));
  if (found == args.end() || !found->is_string()) throw InputError(fmt::format("{}: expected a word", name));
  return found->get<std::string>();
}

std::string words(const json& args) {
  const auto found = args.find("words");
  std::string text;
  if (found == args.end() || !found->is_array()) throw InputError("words: expected a list of words");
  for (const json& w : *found) {
    if (!w.is_string()) throw InputError("words: expected a list of words");
    text += (text.empty() ? "" : " ") + w.get<std::string>();
  }
  return text;
}

bool flag(const json& args, std::string_view name) {
  const auto found = args.find(std::string(name));
  return found != args.end() && found->is_boolean() && found->get<bool>();
}

// Arguments that the table does not know are refused: a spelling mistake must not pass for a default.
void check_arguments(const CommandRow& row, const json& args) {
  for (const auto& [key, value] : args.items()) {
    const bool known = std::any_of(row.arguments.begin(), row.arguments.end(),
                                   [&k = key](const CommandArgument& a) { return a.name == k; });
    if (!known)
      throw InputError(fmt::format("{}: argument \"{}\" is unknown, see lanectl {} --help", row.name, key, row.name));
  }
}

const char* text_of(Direction d) { return d == Direction::kForward ? "forward" : "backward"; }

}  // namespace

json Commands::answer(const std::string& command, const json& args) {
  const auto row = std::find_if(rows().begin(), rows().end(), [&](const Row& r) { return r.name == command; });
  if (row == rows().end()) {
    std::vector<std::string> known;
    for (const std::string_view n : names()) known.emplace_back(n);
    const std::string near = nearest_word(command, known);
    throw InputError(
        fmt::format("command \"{}\": unknown, expected {}", command, near.empty() ? "one of lanectl --help" : near));
  }
  const auto described = std::find_if(command_table().begin(), command_table().end(),
                                      [&](const CommandRow& r) { return r.name == command; });
  if (described != command_table().end()) check_arguments(*described, args);
  return (this->*row->handler)(args);
}

json Commands::explain(const json& args) {
  const std::string name = word(args, "name");
  json lines = json::array();
  const auto add = [&lines](const std::vector<std::string>& more) {
    for (const std::string& l : more) {
      if (std::find(lines.begin(), lines.end(), json(l)) == lines.end()) lines.push_back(l);
    }
  };
  const auto& links = lab_.cluster().links;
  const auto link = std::find_if(links.begin(), links.end(), [&](const LinkSpec& l) { return l.name == name; });
  if (link != links.end()) {
    add(lab_.node(link->node).plane().explain_link(static_cast<LinkId>(link - links.begin())));
  } else {
    const LaneId lane = lab_.lane_named(name);
    const LaneSpec& spec = lab_.cluster().lanes[lane];
    const auto& gpus = lab_.cluster().gpus;
    for (const NodeId n : std::vector<NodeId>{gpus[spec.a].node, gpus[spec.b].node}) {
      add(lab_.node(n).plane().explain_lane(lane));
    }
  }
  return {{"name", name}, {"lines", lines}};
}

json Commands::drain(const json& args) {
  lab_.drain(word(args, "link"), true);
  return {{"link", word(args, "link")}, {"drained", true}};
}

json Commands::undrain(const json& args) {
  lab_.drain(word(args, "link"), false);
  return {{"link", word(args, "link")}, {"drained", false}};
}

json Commands::set_weight(const json& args) {
  const auto weight = args.find("weight");
  if (weight == args.end() || !weight->is_number()) throw InputError("weight: expected a number from 0 to 1");
  lab_.set_weight(word(args, "lane"), weight->get<double>());
  return {{"lane", word(args, "lane")}, {"weight", weight->get<double>()}};
}

json Commands::off(const json& args) {
  lab_.set_off(word(args, "name"), true);
  return {{"name", word(args, "name")}, {"off", true}};
}

json Commands::on(const json& args) {
  lab_.set_off(word(args, "name"), false);
  return {{"name", word(args, "name")}, {"off", false}};
}

json Commands::rebalance(const json& args) {
  const bool apply = flag(args, "apply");
  if (apply == flag(args, "dry-run")) throw InputError("rebalance: expected one of --dry-run and --apply");
  json changes = json::array();
  for (NodeId n = 0; n < lab_.nodes(); ++n) {
    for (const Change& c : lab_.node(n).plane().rebalance(apply, lab_.now())) {
      const LaneSpec& lane = lab_.cluster().lanes[c.lane];
      const EndpointId sender = c.direction == Direction::kForward ? lane.a : lane.b;
      if (lab_.cluster().gpus[sender].node != n) continue;  // each node tells of what it sends
      changes.push_back({{"lane", lane.name},
                         {"direction", text_of(c.direction)},
                         {"from_fraction", c.from},
                         {"to_fraction", c.to},
                         {"reason", c.reason}});
    }
  }
  return {{"applied", apply}, {"changes", changes}};
}

json Commands::inject(const json& args) {
  const FaultSpec fault = parse_fault(words(args));
  const std::uint32_t id = lab_.inject(fault);
  return {{"fault", id}, {"text", fault_to_text(fault)}};
}

json Commands::clear(const json& args) {
  const std::size_t before = lab_.faults().entries().size();
  lab_.clear(words(args));
  return {{"cleared", before - lab_.faults().entries().size()}, {"left", lab_.faults().entries().size()}};
}

json Commands::version(const json&) { return {{"version", LK_VERSION}}; }

std::vector<NodeId> Commands::nodes_of(const json& args) const {
  std::vector<NodeId> nodes;
  const std::string wanted = args.contains("node") ? word(args, "node") : "";
  std::vector<std::string> names;
  for (NodeId n = 0; n < lab_.nodes(); ++n) {
    if (wanted.empty() || lab_.cluster().nodes[n].name == wanted) nodes.push_back(n);
    names.push_back(lab_.cluster().nodes[n].name);
  }
  if (nodes.empty())
    throw InputError(fmt::format("node \"{}\": unknown, expected {} to {}", wanted, names.front(), names.back()));
  return nodes;
}

}  // namespace lk
