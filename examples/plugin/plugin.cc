// A plugin with its own server. Usage: plugin [ADDRESS]
#include <csignal>
#include <cstdio>

#include "cbt/memory.h"
#include "cbt/rpc/server.h"
#include "storage.h"  // yours: what the storage's management API returns

// [provider]
class MyProvider : public cbt::SnapshotProvider {
  absl::StatusOr<cbt::MetadataSource> OpenAllocated(std::string_view id,
                                                    const cbt::StreamContext&) override {
    return Serve(storage::Allocated(id));
  }

  absl::StatusOr<cbt::MetadataSource> OpenDelta(std::string_view base, std::string_view target,
                                                const cbt::StreamContext&) override {
    return Serve(storage::Changed(base, target));
  }

  static absl::StatusOr<cbt::MetadataSource> Serve(const absl::StatusOr<storage::Extents>& found) {
    if (!found.ok()) return found.status();  // NOT_FOUND, for example: never an empty list
    auto cursor = cbt::MakeExtentCursor(
        *found, {.capacity = storage::kCapacity, .granularity = storage::kBlock});
    if (!cursor.ok()) return cursor.status();  // unsorted, overlapping or past the end
    return cbt::MetadataSource{.cursor = *std::move(cursor)};
  }
};
// [/provider]

int main(int argc, char** argv) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);  // before the first thread starts

  MyProvider provider;
  auto server =
      cbt::rpc::Server::Start(provider, {.listen = argc > 1 ? argv[1] : "unix:///csi/csi.sock",
                                         .service = {.plugin_name = "block.example.com"}});
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  std::fprintf(stderr, "serving on %s\n", (*server)->address().c_str());
  int signal = 0;
  sigwait(&stop, &signal);
  (*server)->Shutdown();  // refuses new streams and gives open ones five seconds
  return 0;
}
