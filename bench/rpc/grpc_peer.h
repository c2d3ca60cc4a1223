// The same work with the gRPC library: with its generated classes, and with the least possible
// effort.
#ifndef CBT_BENCH_RPC_GRPC_PEER_H_
#define CBT_BENCH_RPC_GRPC_PEER_H_

#include <benchmark/benchmark.h>

#include <cstdint>

#include "bench/rpc/parts.h"

namespace cbt::bench {

// libprotobuf's message objects on a synchronous server and client.
void Generated(benchmark::State& state, bool blocks, Path path, uint32_t max_results);

// The same through a sidecar that decodes each message, checks it, copies its tuples into another
// and encodes that.
void RelayedGenerated(benchmark::State& state, bool blocks, Path path, uint32_t max_results);

// Messages encoded beforehand, sent by a callback server and dropped by a client.
void Ceiling(benchmark::State& state, bool blocks, Path path, uint32_t max_results);

// `count` messages, repeating the given ones, in the same way.
void TransportCeiling(benchmark::State& state, Path path, const Messages& messages, size_t count);

// A new connection per stream, until its first message has arrived.
void FirstCeiling(benchmark::State& state, Path path, const Messages& messages);

}  // namespace cbt::bench

#endif  // CBT_BENCH_RPC_GRPC_PEER_H_
