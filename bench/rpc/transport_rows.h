// The transport alone, without tuples.
#ifndef CBT_BENCH_RPC_TRANSPORT_ROWS_H_
#define CBT_BENCH_RPC_TRANSPORT_ROWS_H_

namespace cbt::bench {

void AddTransportRows();

}  // namespace cbt::bench

#endif  // CBT_BENCH_RPC_TRANSPORT_ROWS_H_
