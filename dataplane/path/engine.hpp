// Engine: the data path of one node. It owns the life of every chunk (see README.md in this folder): one file a stage.
//   ingest.cpp   ops enter, are checked and start      route.cpp     which lane a transfer takes
//   move.cpp     posting, completions, acknowledgement  commit.cpp    a chunk lands: checks, ledger
//   reduce.cpp   folding and what follows a value       complete.cpp  ops end: done or failed
//   credit.cpp   landing slots granted and told         stall.cpp     suspicion, hedging, deadlines
//   fence.cpp    a lane fails and is fenced             probe.cpp     a lane comes back
//   command.cpp  what the control plane asks            signal.cpp    small messages
// Owner: one reactor (or the simulator's thread); everything here is noexcept after set-up. Other threads reach it by
// its rings only. Time is passed in. A full event or result ring is counted and retried, never waited for.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "dataplane/api/cluster.hpp"
#include "dataplane/api/command.hpp"
#include "dataplane/api/event.hpp"
#include "dataplane/api/op.hpp"
#include "dataplane/api/peer_message.hpp"
#include "dataplane/api/route_table.hpp"
#include "dataplane/api/snapshot.hpp"
#include "dataplane/base/counters.hpp"
#include "dataplane/base/ring.hpp"
#include "dataplane/lane/lane_side.hpp"
#include "dataplane/lane/wire.hpp"
#include "dataplane/loop/poller.hpp"
#include "dataplane/memory/slots.hpp"
#include "dataplane/path/engine_group.hpp"
#include "dataplane/path/options.hpp"
#include "dataplane/path/transfer.hpp"

namespace lk {

class Engine final : public Poller {
 public:
  Engine(const ClusterSpec& cluster, NodeId node, const EngineOptions& options, Wire& wire, SlotTable& slots,
         Incarnation incarnation);
  ~Engine() override;

  Ring<Command>& commands() noexcept { return commands_; }       // control → engine
  Ring<Event>& events() noexcept { return events_; }             // engine → control
  Ring<OpRequest>& requests() noexcept { return requests_; }     // session poller or driver → engine
  Ring<OpResult>& results() noexcept { return results_; }        // engine → the same
  Ring<PeerMessage>& peer_out() noexcept { return peer_out_; }   // control → engine: send in band
  Ring<PeerMessage>& peer_in() noexcept { return peer_in_; }     // engine → control: came in band
  Ring<Signal>& signals_out() noexcept { return signals_out_; }  // engine → control channel: no live lane there
  Ring<Signal>& signals_in() noexcept { return signals_in_; }    // control channel → engine

  // Any thread: when this node last heard that one in band; -1 if never.
  Nanos last_heard(NodeId node) const noexcept { return peers_[node].last_heard.load(std::memory_order_relaxed); }

  const char* name() const noexcept override { return "engine"; }
  unsigned poll(Nanos now) noexcept override;
  Nanos next_time(Nanos now) const noexcept override;
  const Counters& counters() const noexcept { return counters_; }  // owner thread
  // Owner thread; others ask by kTakeSnapshot. Vectors are filled as far as they have capacity.
  void fill_snapshot(Snapshot& out, Nanos now) noexcept;

 private:
  struct Peer {
    std::atomic<Nanos> last_heard{-1};
    Incarnation incarnation = 0;
    std::uint64_t turn = 0;    // its turn counter as last told
    Nanos turn_moved_at = -1;  // when that last grew
    bool dead = false;
    bool wanted = false;               // some group has ranks there
    std::vector<std::uint32_t> sides;  // lane sides to it, by rung
    Signal acks{};                     // tokens gathered in this turn
    ToldAcks told;                     // the last ones, to be told again when they may have been lost
  };

  // ingest.cpp
  unsigned take_requests(Nanos now) noexcept;
  void enter(const OpRequest& q, Nanos now) noexcept;
  Status check_request(const OpRequest& q) const noexcept;
  void refuse(const OpRequest& q, Status status, NodeId lost = kNoId16) noexcept;
  OpState& open_op(EngineGroup& g, const OpRequest& q, Nanos now);
  void start_ready(EngineGroup& g, Nanos now) noexcept;
  void start(OpState& op, Nanos now) noexcept;
  void lay_out(OpState& op);
  // reduce.cpp
  void advance_owner(OpState& op, std::size_t place, Nanos now) noexcept;
  void advance_owners(OpState& op, Nanos now) noexcept;
  void advance_streams(OpState& op) noexcept;
  void advance_stream(OpState& op, std::size_t place, Rank to) noexcept;
  bool begin_chunk(OpState& op, std::size_t place, std::uint32_t chunk, Nanos now) noexcept;
  void gather_arrived(OpState& op, std::uint32_t chunk, std::size_t domain_place, Nanos now) noexcept;
  void take_early_return(OpState& op, std::size_t place, std::uint32_t chunk, Nanos now) noexcept;
  bool gather_complete(const OpState& op, std::uint32_t chunk) const noexcept;
  void reduce_domain(OpState& op, std::uint32_t chunk, Nanos now) noexcept;
  void cross_arrived(OpState& op, std::uint32_t chunk, std::size_t domain, Nanos now) noexcept;
  void reduce_domains(OpState& op, std::uint32_t chunk, Nanos now) noexcept;
  void finish_chunk(OpState& op, std::uint32_t chunk, Nanos now) noexcept;
  void place(OpState& op, std::uint32_t chunk, std::size_t local_place, const std::byte* value, Nanos now) noexcept;
  void spread_done(OpState& op, std::uint32_t chunk, Nanos now) noexcept;
  void release_slot(std::uint32_t& slot) noexcept;
  std::size_t expected_gathers(const OpState& op, std::uint32_t chunk) const noexcept;
  // move.cpp
  std::uint32_t make_transfer(OpState& op, std::uint32_t chunk, Step step, Rank from, Rank to,
                              const std::byte* data) noexcept;
  void enqueue(std::uint32_t transfer, bool front) noexcept;
  bool post(std::uint32_t transfer, std::uint32_t side, Nanos now) noexcept;
  void append_request(std::uint32_t request, std::uint32_t side, Nanos expected_ns, Nanos now) noexcept;
  void note_resent(Transfer& x, LaneSide& s, Nanos now) noexcept;
  void fill_header(const Transfer& t, std::uint32_t index, const LaneSide& s, WorkRequest& w) noexcept;
  unsigned take_completions(Nanos now) noexcept;
  void on_send_done(const Completion& c, Nanos now) noexcept;
  void progress(LaneSide& s, const Request& r, Nanos now) noexcept;
  void retire(std::uint32_t transfer, Nanos now) noexcept;
  void settle(std::uint32_t request, Nanos now) noexcept;
  void settle_reaped(std::uint32_t transfer, Nanos now) noexcept;
  void free_transfer_if_done(std::uint32_t transfer) noexcept;
  void on_ack(const Signal& s, Nanos now) noexcept;
  // route.cpp
  void mark_dirty(std::uint32_t trunk) noexcept;
  unsigned run_dirty(Nanos now) noexcept;
  bool pump(std::uint32_t trunk, Nanos now) noexcept;
  bool has_room(const LaneSide& s, Bytes bytes, GBps rate) const noexcept;
  std::uint32_t choose_side(const Trunk& t, const Transfer& x) noexcept;
  std::uint32_t choose_by_turn(const Trunk& t, const Transfer& x, bool& live) noexcept;
  std::uint32_t choose_stand_by(const Trunk& t, const Transfer& x, bool& live) noexcept;
  double cost_ns(const LaneSide& s, Bytes bytes, GBps rate) const noexcept;
  GBps rate_of(const LaneSide& s) const noexcept { return s.fresh ? s.rate_GBps : 0; }
  GBps standby_of(const LaneSide& s) const noexcept;
  void note_rung(Trunk& t, Nanos now) noexcept;
  void take_turn(LaneSide& s, GBps rate) noexcept;
  template <typename F>
  void each_hop(const LaneSide& s, F&& f) const noexcept;
  // commit.cpp
  void on_recv(const Completion& c, Nanos now) noexcept;
  bool accept(const Completion& c, const ChunkHeader& h, const std::byte* payload, Nanos now) noexcept;
  void commit(OpState& op, const ChunkHeader& h, std::uint32_t slot, Nanos now) noexcept;
  bool already_have(const OpState& op, const ChunkHeader& h) const noexcept;
  bool valid_chunk(const OpState& op, const ChunkHeader& h) const noexcept;
  void free_landed(std::uint32_t slot) noexcept;
  // complete.cpp
  void check_done(OpState& op, std::size_t place) noexcept;
  void deliver(OpState& op, std::size_t place) noexcept;
  void push_result(const OpResult& r) noexcept;
  void close_op(OpState& op) noexcept;
  void fail_op(OpState& op, Status status, NodeId lost, Rank other, bool tell, Nanos now) noexcept;
  void mismatch(OpState& op, Rank other, Nanos now, Rank mine = kNoId16) noexcept;
  void drop_chunks(OpState& op) noexcept;
  bool deliver_failed(OpState& op, Nanos now) noexcept;  // true: all ranks have their result
  void deliver_failed_all(Nanos now) noexcept;
  unsigned deliver_late_results() noexcept;
  // credit.cpp
  void grant_slots(Flow& f, std::uint32_t index, unsigned quota) noexcept;
  void grant_op(EngineGroup& g, OpState& op, Nanos now) noexcept;
  void send_credit(std::uint32_t flow, OpNumber granted, std::uint32_t hash, bool all, Nanos now) noexcept;
  void flush_credits(Nanos now) noexcept;
  void on_credit(const Signal& s, Nanos now) noexcept;
  RemoteSlot* free_slot(Flow& f, const Transfer& x) noexcept;
  void check_hash(EngineGroup& g, OpNumber number, std::uint32_t hash, Rank other, Nanos now) noexcept;
  // stall.cpp
  void tick(Nanos now) noexcept;
  void watch_side(std::uint32_t side, Nanos now) noexcept;
  void settle_doubt(std::uint32_t side, Nanos now) noexcept;
  void resume(std::uint32_t side, Nanos now) noexcept;
  void hedge_late(std::uint32_t side, Nanos now) noexcept;
  void repeat_alone(std::uint32_t side, Nanos now) noexcept;
  bool other_open(const LaneSide& s) const noexcept;
  bool other_live(const LaneSide& s) const noexcept;
  void watch_ops(Nanos now) noexcept;
  void heartbeat(Nanos now) noexcept;
  // loss.cpp
  bool is_missing(const LaneSide& s, std::uint32_t word) const noexcept;
  void note_missing(const Request& r, Nanos now) noexcept;
  void free_missing(std::uint32_t word) noexcept;
  void watch_losses(Nanos now) noexcept;
  // fence.cpp
  void fail_side(std::uint32_t side, Cause cause, Nanos now) noexcept;
  void take_orphans(std::uint32_t side, Cause cause, Nanos now) noexcept;
  void send_fence(LaneSide& s, Nanos now) noexcept;
  void on_fence(const Signal& s, Nanos now) noexcept;
  void on_fence_ack(const Signal& s, Nanos now) noexcept;
  void finish_fence(std::uint32_t side, Nanos now) noexcept;
  std::uint64_t reclaim(const Signal& f, NodeId peer, Nanos now) noexcept;
  void on_port(LinkId link, bool up, Nanos now) noexcept;
  void forget_peer(NodeId node, Nanos now) noexcept;
  // probe.cpp
  void schedule_probe(LaneSide& s, Nanos now) noexcept;
  void keep_last_way(const Trunk& t, Nanos now) noexcept;
  void send_probe(std::uint32_t side, Nanos now) noexcept;
  void on_probe(const Signal& s, Nanos now) noexcept;
  void on_echo(const Completion& c, Nanos now) noexcept;
  void lane_returned(std::uint32_t side, Nanos now) noexcept;
  void probe_failed(std::uint32_t side, Nanos now) noexcept;
  // command.cpp
  unsigned take_commands(Nanos now) noexcept;
  void install_routes(const RouteTable* table, Nanos now) noexcept;
  void create_group(const GroupSpec* spec, const PlanSpec* plan, Nanos now);
  void shrink_group(const GroupSpec* spec, const PlanSpec* plan, Nanos now);
  void adopt_members(EngineGroup& g, const GroupSpec* spec, const PlanSpec* plan, Nanos now);
  void add_flows(EngineGroup& g);
  void size_windows(EngineGroup& g) const noexcept;
  void end_group(const Command& c, Nanos now) noexcept;
  void install_plan(const PlanSpec* plan, Nanos now) noexcept;
  void hold_ops(const Command& c, Nanos now) noexcept;
  void set_off(LaneId lane, Direction d, bool off, Nanos now) noexcept;
  // signal.cpp
  unsigned take_signals(Nanos now) noexcept;
  void on_signal(const Completion& c, Nanos now) noexcept;
  void handle_signal(const Signal& s, Nanos now) noexcept;
  bool hear(NodeId node, Incarnation incarnation, Nanos now) noexcept;
  Signal new_signal(SignalKind kind, NodeId to) const noexcept;
  std::uint32_t signal_side(const Peer& p, std::uint32_t avoid_lane, Nanos now) const noexcept;
  bool signal_over(LaneSide& l, Signal& s, Nanos now) noexcept;
  void send_signal(Signal& s, Nanos now, std::uint32_t avoid_lane = kNoId) noexcept;
  void send_abort(const OpState& op, Nanos now) noexcept;
  void on_abort(const Signal& s, Nanos now) noexcept;
  void flush_acks(Nanos now) noexcept;
  void repeat_acks(NodeId to, Nanos now) noexcept;
  void tell_again(NodeId to, Nanos now) noexcept;
  void emit(Event e, Nanos now) noexcept;
  void emit_lane(EventKind kind, LaneSide& s, Cause cause, std::uint64_t value, Nanos now) noexcept;

  void arm(Nanos t) noexcept { next_tick_ = t < next_tick_ ? t : next_tick_; }
  std::uint32_t side_index(LaneId lane, Direction d) const noexcept { return lane * 2 + static_cast<std::uint32_t>(d); }
  std::uint32_t our_side(LaneId lane, Direction d) const noexcept;  // of a far lane: the side that we send on
  EngineGroup* group(GroupId id) noexcept { return id < groups_.size() ? groups_[id].get() : nullptr; }
  const LaneSpec& spec_of(const LaneSide& s) const noexcept { return cluster_.lanes[s.lane]; }
  std::uint32_t find_trunk(EndpointId from, EndpointId to) const noexcept;
  void build_sides();

  const ClusterSpec& cluster_;
  const NodeId node_;
  const EngineOptions options_;
  Wire& wire_;
  SlotTable& slots_;
  const Incarnation incarnation_;

  Ring<Command> commands_{1024};
  Ring<Event> events_{8192};
  Ring<OpRequest> requests_{4096};
  Ring<OpResult> results_{4096};
  Ring<PeerMessage> peer_out_{1024};
  Ring<PeerMessage> peer_in_{1024};
  Ring<Signal> signals_out_{1024};
  Ring<Signal> signals_in_{1024};

  std::vector<LaneSide> sides_;      // by lane × 2 + direction
  std::vector<std::uint32_t> ours_;  // sides that start here
  std::vector<std::uint32_t> busy_;  // sides with requests under way
  std::vector<Trunk> trunks_;
  std::vector<std::uint32_t> trunk_index_;  // by local GPU × all GPUs
  std::vector<std::uint32_t> dirty_;
  std::vector<std::uint32_t> starved_;  // trunks that wait for a buffer, retried when a request settles
  std::vector<std::uint32_t> scan_;     // tick's own
  std::vector<std::uint32_t> ailing_;   // our sides that are not up
  std::vector<std::uint32_t> losing_;   // our sides with missing slots
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> credits_due_;
  std::vector<std::unique_ptr<EngineGroup>> groups_;  // by id
  std::unique_ptr<Peer[]> peers_;
  std::vector<NodeId> acks_due_;
  IndexPool<Transfer> transfers_;
  IndexPool<Request> posted_;
  std::uint32_t reserved_transfers_ = 0;
  std::vector<Bytes> link_queued_;    // by link × 2: bytes of ours under way over it
  std::vector<GBps> link_rate_;       // by link × 2: what it is believed to do
  std::vector<unsigned> relay_free_;  // by local GPU
  std::vector<OpRequest> deferred_;   // beyond the op window
  std::vector<OpResult> late_results_;
  std::vector<OpState*> failing_;  // failed ops with requests under way
  const RouteTable* routes_ = nullptr;
  std::vector<std::pair<const GroupSpec*, const PlanSpec*>> shrinks_;  // wait for the old membership's requests
  std::uint64_t event_number_ = 0;
  std::uint64_t turn_ = 0;
  Nanos next_tick_ = 0, next_heartbeat_ = 0;
  Counters counters_;
};

// Both halves of a lane's path, as link × 2 + direction of travel.
template <typename F>
void Engine::each_hop(const LaneSide& s, F&& f) const noexcept {
  const LaneSpec& lane = spec_of(s);
  const auto visit = [&](const Hop& h) {
    f(std::size_t{h.link} * 2 + (static_cast<std::size_t>(h.direction) ^ static_cast<std::size_t>(s.direction)));
  };
  for (const Hop& h : lane.near_hops) visit(h);
  for (const Hop& h : lane.far_hops) visit(h);
}

}  // namespace lk
