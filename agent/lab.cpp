#include "agent/lab.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataplane/base/error.hpp"
#include "dataplane/base/random.hpp"

namespace lk {
namespace {

constexpr unsigned kStagingBuffers = 2048;  // of a node; reserved, touched when used
constexpr unsigned kInbox = 16384;

UniqueFd new_bell() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw SystemError(fmt::format("eventfd: {}", std::strerror(errno)));
  return fd;
}

// A chunk takes no more than 1 ms on the slowest lane that is first in its trunk's ladder.
Bytes fitting_chunk(const ClusterSpec& cluster, Bytes most) {
  GBps least = 1e9;
  for (const TrunkSpec& t : cluster.trunks) least = std::min(least, cluster.lanes[t.first_lane].nominal_GBps);
  const auto bytes = static_cast<Bytes>(std::min(least * static_cast<double>(kMilli), 1e12));
  return std::clamp<Bytes>(bytes / (16 * kKiB) * (16 * kKiB), 16 * kKiB, most);
}

}  // namespace

void Lab::on_message(void* self, NodeId node, Nanos) noexcept { static_cast<Lab*>(self)->reactor_of(node).wake(); }
void Lab::on_wake_node(void* self, NodeId node) noexcept { static_cast<Lab*>(self)->reactor_of(node).wake(); }
void Lab::on_wake_control(void* self) noexcept { static_cast<Lab*>(self)->wake_control(); }

Lab::Lab(const ClusterSpec& cluster, const LabOptions& options)
    : cluster_(cluster),
      options_(options),
      chunk_most_bytes_(fitting_chunk(cluster, options.config.engine.chunk_most_bytes)),
      bell_(new_bell()),
      place_(cluster.nodes.size(), 0),
      bus_(cluster.nodes.size()),
      faults_(cluster),
      dead_(cluster.nodes.size(), false) {
  Random random(options.seed);
  incarnation_ = random.next() | 1U;
  LoopbackOptions net;
  net.payload = options.config.engine.payload;
  net.staging_bytes = options.config.engine.chunk_most_bytes;
  net.staging_count = kStagingBuffers;
  net.inbox = kInbox;
  net_ = std::make_unique<LoopbackNet>(cluster_, net, Waker{&Lab::on_message, this});
  const NodeParts parts{cluster_,
                        options_.config.engine,
                        options_.control,
                        *net_,
                        bus_,
                        memo_,
                        Wakers{&Lab::on_wake_node, &Lab::on_wake_control, this}};
  std::vector<SessionPoller*> pollers;
  for (NodeId n = 0; n < nodes(); ++n) {
    nodes_.push_back(std::make_unique<Node>(parts, n, random.next() | 1U));
    pollers.push_back(&nodes_.back()->sessions());
  }
  for (SessionPoller* p : pollers) p->meet(pollers);
  const ReactorConfig& loop = options_.config.reactor;
  for (const ReactorPlace& r : options_.cores.reactors) {
    ReactorOptions reactor{.pause_ns = r.shared ? 0 : loop.pause_ns, .yield_ns = loop.yield_ns};
    for (const IdleMode m : {IdleMode::kPoll, IdleMode::kAdaptive, IdleMode::kInterrupt}) {
      if (loop.mode == name_of(m)) reactor.mode = m;
    }
    reactors_.push_back(std::make_unique<Reactor>(clock_, reactor));
    for (const NodeId n : r.nodes) {
      place_[n] = reactors_.size() - 1;
      reactors_.back()->add(nodes_[n]->engine());
      reactors_.back()->add(nodes_[n]->sessions(), &nodes_[n]->sessions());
    }
  }
}

Lab::~Lab() { stop(); }

void Lab::start(const LabThreads& threads) {
  threads_ = threads;
  running_ = true;
  for (std::size_t i = 0; i < reactors_.size(); ++i) {
    threads_.launch(
        options_.cores.reactors[i].lcore, [](void* r) noexcept { static_cast<Reactor*>(r)->run(); },
        reactors_[i].get());
  }
}

void Lab::stop() {
  if (!running_) return;
  running_ = false;
  for (const auto& r : reactors_) r->stop();
  for (const ReactorPlace& r : options_.cores.reactors) threads_.wait(r.lcore);
}

void Lab::turn() {
  const Nanos now = clock_.now();
  bus_.advance(now);
  carry_messages();
  for (const auto& n : nodes_) {
    if (alive(n->id())) n->step(now);
  }
  carry_messages();
  carry_signals();
  for (const auto& n : nodes_) {
    if (alive(n->id()) && n->engine_has_mail()) reactor_of(n->id()).wake();
  }
}

void Lab::carry_messages() {
  while (const auto message = bus_.next()) {
    if (alive(message->to)) nodes_[message->to]->plane().receive(*message, clock_.now());
  }
}

bool Lab::refresh_snapshots(Nanos limit) {
  const Nanos begin = clock_.now();
  const auto fresh = [this, begin](const auto& n) {
    return !alive(n->id()) || (n->plane().snapshot() != nullptr && n->plane().snapshot()->at >= begin);
  };
  for (const auto& n : nodes_) n->plane().request_snapshot();
  for (;;) {
    turn();
    const bool all = std::all_of(nodes_.begin(), nodes_.end(), fresh);
    if (all || clock_.now() - begin > limit) return all;
    // One that was under way when we came is older than we want: ask once more when it is back.
    for (const auto& n : nodes_) {
      if (!fresh(n)) n->plane().request_snapshot();
    }
    pollfd waited{bell_.get(), POLLIN, 0};
    ::poll(&waited, 1, 1);
    quiet_bell();
  }
}

// What engines could not say over any lane goes over the control channel, where there is one.
void Lab::carry_signals() {
  Signal signal;
  for (const auto& n : nodes_) {
    while (n->engine().signals_out().pop(signal)) {
      if (signal.to >= nodes_.size() || bus_.is_cut(n->id(), signal.to)) continue;  // its sender asks again
      nodes_[signal.to]->engine().signals_in().push(signal);
    }
  }
}

Nanos Lab::next_time() const noexcept {
  const Nanos now = clock_.now();
  Nanos next = kNever;
  for (const auto& n : nodes_) {
    if (alive(n->id())) next = std::min(next, n->plane().next_time(now));
  }
  return next;
}

void Lab::wake_control() noexcept {
  if (rung_.exchange(true, std::memory_order_acq_rel)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
}

void Lab::quiet_bell() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(bell_.get(), &count, sizeof count);
  rung_.exchange(false, std::memory_order_acq_rel);
}

void Lab::enter(NodeId node, const OpRequest& request) {
  // The engine takes all requests in each of its turns and waits for nobody, so there is room soon.
  while (!nodes_[node]->engine().requests().push(request)) reactor_of(node).wake();
  reactor_of(node).wake();
}

void Lab::kill(NodeId node) {
  LK_CHECK(options_.cores.reactors[place_[node]].nodes.size() == 1);
  dead_[node] = true;
  reactor_of(node).stop();
  net_->close(node);
  bus_.fault(FaultRow{.kind = FaultKind::kCut, .target = FaultTarget::kNode, .id = node});
}

void Lab::send(const SessionCommand& command) {
  const NodeId home = SessionPoller::home_of(command.session->id());
  // The poller takes all commands in each of its turns and waits for nobody, so there is room soon.
  while (!nodes_[home]->sessions().commands().push(command)) reactor_of(home).wake();
  reactor_of(home).wake();
}

}  // namespace lk
