// A load over NBD, for volumes.py: keeps requests in flight for a time, and prints how many bytes
// per second were acknowledged.
//
//   nbd_load SOCKET fill|random|sequential SECONDS
//
// random: writes of 4 KiB at random places, 32 in flight; sequential: writes of 1 MiB one after the
// other, 4 in flight; fill: the same, once over the whole volume, however long that takes.
#include <libnbd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// libnbd's NBD_NULL_COMPLETION is not valid C++.
constexpr nbd_completion_callback kNoCompletion{nullptr, nullptr, nullptr};

int Fail() {
  std::fprintf(stderr, "%s\n", nbd_get_error());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const bool fill = std::string_view(argv[2]) == "fill";
  const bool random = std::string_view(argv[2]) == "random";
  const size_t bytes = random ? 4096 : size_t{1} << 20;
  const int depth = random ? 32 : 4;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(std::atof(argv[3])));
  nbd_handle* const nbd = nbd_create();
  if (nbd == nullptr || nbd_connect_unix(nbd, argv[1]) != 0) return Fail();
  const auto places = static_cast<uint64_t>(nbd_get_size(nbd)) / bytes;
  const std::vector<char> data(bytes, 'x');
  std::mt19937_64 numbers(1);
  uint64_t next = 0;
  uint64_t done = 0;
  const auto begin = Clock::now();
  const auto more = [&] { return fill ? next < places : Clock::now() < end; };
  // What is in flight at the end is waited for.
  while (more() || nbd_aio_in_flight(nbd) > 0) {
    while (more() && nbd_aio_in_flight(nbd) < depth) {
      const uint64_t place = random ? numbers() % places : next++ % places;
      if (nbd_aio_pwrite(nbd, data.data(), bytes, place * bytes, kNoCompletion, 0) < 0) {
        return Fail();
      }
    }
    if (nbd_poll(nbd, -1) < 0) return Fail();
    for (int64_t cookie; (cookie = nbd_aio_peek_command_completed(nbd)) > 0;) {
      if (nbd_aio_command_completed(nbd, static_cast<uint64_t>(cookie)) != 1) return Fail();
      ++done;
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("%.0f\n", static_cast<double>(done * bytes) / seconds);
  nbd_close(nbd);
}
