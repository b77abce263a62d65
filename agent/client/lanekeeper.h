/* lanekeeper.h: the public C interface of Lanekeeper. A training process attaches to the agent of its node, puts its
 * gradients in memory that the agent lends, and asks for collectives; the agent moves the bytes.
 *
 * Life of a session:
 *     lk_session* s;   lk_group* g;   void* data;   uint64_t cookie;   lk_result r;
 *     lk_attach("/run/lanekeeper/agent.sock", NULL, &s);
 *     lk_alloc(s, bytes, &data);
 *     lk_group_join(s, "job-7", rank, ranks, LK_ANY_GPU, &g);
 *     lk_group_wait(g, 30 * LK_SECOND);                      all ranks have joined
 *     lk_all_reduce(g, data, data, count, LK_F32, LK_AVG, &cookie);
 *     lk_wait(s, cookie, 30 * LK_SECOND, &r);
 *     lk_detach(s);
 *
 * Every call returns LK_OK or says why not; lk_last_error() has one line about the last failed call of this thread.
 * A session and its groups belong to one thread at a time: the caller locks if he shares them. No call waits longer
 * than its timeout, and none waits for an agent that has died: that is LK_DISCONNECTED. Times are in nanoseconds, sizes
 * in bytes, counts in elements. The library starts no thread, handles no signal and loads no DPDK.
 */
#ifndef LANEKEEPER_H
#define LANEKEEPER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LK_API __attribute__((visibility("default")))

#define LK_SECOND ((int64_t)1000000000)
#define LK_ANY_GPU ((uint16_t)0xffff) /* the agent chooses: rank r on the r-th GPU that it has */
#define LK_NO_NODE ((uint16_t)0xffff)

typedef enum lk_status {
  LK_OK = 0,
  LK_BUSY = 1,           /* no room now: finish some ops, then try again */
  LK_DOWN = 2,           /* the peer or lane cannot be used */
  LK_INVALID = 3,        /* an argument is wrong */
  LK_MISMATCH = 4,       /* ranks disagree on an op's count, type or order; lk_result.rank is the other rank */
  LK_NODE_LOST = 5,      /* a node of the group died */
  LK_PARTITIONED = 6,    /* this side of a partition may not go on */
  LK_DEADLINE = 7,       /* the op's deadline, set in the agent's config, has passed */
  LK_CANCELLED = 8,      /* the group or the agent ended */
  LK_UNSUPPORTED = 9,    /* a type, reduction or collective that this agent does not have */
  LK_TIMEOUT = 100,      /* this call's timeout has passed; the op goes on */
  LK_DISCONNECTED = 101, /* the agent has gone; the session can only be detached */
  LK_SYSTEM = 102        /* the system refused a call: no memory, no descriptor, no such socket */
} lk_status;

/* The last value of each is none: it makes the type as wide as int, so that a wrong number can be passed and refused.
 */
typedef enum lk_dtype { LK_F32 = 0, LK_F16 = 1, LK_BF16 = 2, LK_DTYPE_WIDTH = 0x7fffffff } lk_dtype;
typedef enum lk_redop { LK_SUM = 0, LK_AVG = 1, LK_REDOP_WIDTH = 0x7fffffff } lk_redop;

typedef struct lk_session lk_session;
typedef struct lk_group lk_group; /* one rank's membership; owned by the session */

typedef struct lk_options {
  uint64_t data_bytes;    /* memory for lk_alloc; 0: 64 MiB */
  uint32_t ops_in_flight; /* most ops of the session not yet complete; 0: 256 */
  const char* name;       /* shown by `lanectl show`; NULL: the process's id */
  int64_t timeout_ns;     /* for attach and for each join's answer; 0: 5 s */
} lk_options;

typedef struct lk_result {
  uint64_t cookie;
  uint64_t op_number;      /* in the group, from 1 */
  lk_status status;        /* of the op */
  uint16_t rank;           /* LK_MISMATCH, LK_NODE_LOST: the rank that it is about */
  uint16_t lost_node;      /* LK_NODE_LOST, LK_PARTITIONED: index of the node, else LK_NO_NODE */
  uint32_t progress_done;  /* chunks of this rank that were complete, */
  uint32_t progress_total; /* and how many there were */
} lk_result;

/* Attaches to the agent whose control socket is `socket` (lanekeeperd --socket). `options` may be NULL. */
LK_API lk_status lk_attach(const char* socket, const lk_options* options, lk_session** session);

/* Ends the session and frees everything of it, memory from lk_alloc too. Ops in flight are given up. NULL is allowed.
 */
LK_API void lk_detach(lk_session* session);

/* Memory that ops can use, at a multiple of 64. LK_BUSY: not that much is free in one piece. */
LK_API lk_status lk_alloc(lk_session* session, size_t bytes, void** memory);
/* Gives memory from lk_alloc back; no op may still use it. NULL is allowed. */
LK_API lk_status lk_free(lk_session* session, void* memory);

/* Joins `group` as `rank` of `ranks`. The agent's answer is waited for, the other ranks are not. A process may join
 * several ranks. `gpu` is the GPU that the rank's data belongs to, as `lanectl show topology` counts, or LK_ANY_GPU. */
LK_API lk_status lk_group_join(lk_session* session, const char* group, uint16_t rank, uint16_t ranks, uint16_t gpu,
                               lk_group** joined);
/* Waits until all ranks have joined. */
LK_API lk_status lk_group_wait(lk_group* group, int64_t timeout_ns);

/* Starts an all-reduce of `count` elements from `in` to `out`, both in memory from lk_alloc, the same or apart. Every
 * rank of the group makes the same calls in the same order. The buffers are the agent's until the op is complete.
 * LK_BUSY: too many ops in flight, or ranks still missing (lk_group_wait). `cookie` names the op for lk_wait. */
LK_API lk_status lk_all_reduce(lk_group* group, const void* in, void* out, size_t count, lk_dtype dtype, lk_redop op,
                               uint64_t* cookie);
/* Starts a broadcast: `out` of every rank becomes `in` of rank `root`. On other ranks `in` may be NULL. */
LK_API lk_status lk_broadcast(lk_group* group, const void* in, void* out, size_t count, lk_dtype dtype, uint16_t root,
                              uint64_t* cookie);

/* Takes results of up to `most` completed ops, without waiting; `taken` says how many. After LK_DISCONNECTED `taken`
 * may still be more than 0: those ops were complete. */
LK_API lk_status lk_poll(lk_session* session, lk_result* results, size_t most, size_t* taken);
/* Waits for one op and takes its result; returns the op's own status, or LK_TIMEOUT, LK_DISCONNECTED, LK_INVALID (no
 * such op, or its result was taken before). timeout_ns 0 only looks. `result` may be NULL. */
LK_API lk_status lk_wait(lk_session* session, uint64_t cookie, int64_t timeout_ns, lk_result* result);

/* "ok", "node_lost", …; never NULL. */
LK_API const char* lk_status_name(lk_status status);
/* One line about the last call of this thread that failed; "" if none did. Valid until the next call. */
LK_API const char* lk_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
