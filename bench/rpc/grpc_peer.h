// The same work done with the gRPC library: by its generated classes, and the least that it can do.
#ifndef CBT_BENCH_RPC_GRPC_PEER_H_
#define CBT_BENCH_RPC_GRPC_PEER_H_

#include <benchmark/benchmark.h>

#include <cstdint>

#include "bench/rpc/parts.h"

namespace cbt::bench {

// Message objects of libprotobuf on a synchronous server and client.
void Generated(benchmark::State& state, bool blocks, Path path, uint32_t max_results);

// The same with a sidecar between them that decodes each message, checks it, copies its tuples into
// another and encodes that.
void RelayedGenerated(benchmark::State& state, bool blocks, Path path, uint32_t max_results);

// Messages that were encoded before, on a callback server, dropped by a client.
void Ceiling(benchmark::State& state, bool blocks, Path path, uint32_t max_results);

// `count` messages, the given ones again and again, in the same way.
void TransportCeiling(benchmark::State& state, Path path, const Messages& messages, size_t count);

// A new connection for each stream, until its first message has arrived.
void FirstCeiling(benchmark::State& state, Path path, const Messages& messages);

}  // namespace cbt::bench

#endif  // CBT_BENCH_RPC_GRPC_PEER_H_
