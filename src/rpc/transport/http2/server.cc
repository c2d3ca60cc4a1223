#include "rpc/transport/http2/server.h"

#include <algorithm>
#include <new>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/contract/server_event.h"
#include "rpc/transport/http2/acceptor.h"
#include "rpc/transport/http2/server_call_impl.h"
#include "rpc/transport/http2/server_worker.h"

namespace cbt::rpc::http2 {

// Destroyed from the bottom up: the services outlive the loops.
struct ServerParts {
  // Runs in the first worker's loop.
  void StopListening() noexcept {
    acceptors.clear();
    const std::lock_guard lock(mutex);
    listening = false;
    stopped.notify_all();
  }

  // Runs in the first worker's loop.
  void Take(OwnedDescriptor connection) noexcept {
    bool replaces = false;
    ServerWorker* worker = workers[next_worker++ % workers.size()].get();
    if (shared.connections.load() >= shared.limits.connections) {
      replaces = true;
      for (size_t i = 1; i < workers.size() && worker->replaceable() == 0; ++i) {
        worker = workers[next_worker++ % workers.size()].get();
      }
    }
    ++shared.connections;
    worker->Give(std::move(connection), replaces);
  }

  Address address;
  ServerShared shared;
  std::unique_ptr<SocketFile> socket_file;
  std::unique_ptr<LoopThreads> own_loops;
  LoopThreads* loops = nullptr;
  std::vector<std::unique_ptr<ServerWorker>> workers;  // one per loop
  std::vector<std::unique_ptr<Acceptor>> acceptors;
  size_t next_worker = 0;
  MemberTask<ServerParts, &ServerParts::StopListening> stop_listening{*this};
  std::mutex mutex;
  std::condition_variable stopped;
  bool listening = false;
  bool stopping = false;
};

namespace {

absl::Status Listen(ServerParts& parts) {
  Address& address = parts.address;
  if (address.is_unix) {
    auto file = SocketFile::Claim(address.path);
    if (!file.ok()) return file.status();
    parts.socket_file = *std::move(file);
  } else if (absl::Status status = ProbeTcpAddress(address); !status.ok()) {
    return status;
  }
  auto sockets = ListenAt(address);
  if (!sockets.ok()) return sockets.status();
  if (parts.socket_file != nullptr) {
    if (absl::Status status = parts.socket_file->SetMode(); !status.ok()) return status;
  }
  for (OwnedDescriptor& socket : *sockets) {
    auto acceptor = Acceptor::Create(
        parts.workers.front()->loop(), std::move(socket),
        [&parts](OwnedDescriptor connection) { parts.Take(std::move(connection)); });
    if (!acceptor.ok()) return acceptor.status();
    parts.acceptors.push_back(*std::move(acceptor));
  }
  parts.listening = true;
  return absl::OkStatus();
}

absl::Status Prepare(ServerParts& parts, const std::vector<Service*>& services) {
  for (const Service* const service : services) {
    for (const Service::Method& method : service->methods()) {
      parts.shared.methods.emplace(method.path, &method);
    }
  }
  if (parts.loops == nullptr) {
    auto loops = LoopThreads::Create(parts.shared.limits.loops);
    if (!loops.ok()) return loops.status();
    parts.own_loops = *std::move(loops);
    parts.loops = parts.own_loops.get();
  }
  parts.shared.workers = parts.loops->size();
  for (size_t i = 0; i < parts.loops->size(); ++i) {
    parts.workers.push_back(std::make_unique<ServerWorker>(parts.shared, parts.loops->loop(i), i));
  }
  return Listen(parts);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Address& address,
                                                      const ServerLimits& limits,
                                                      const std::vector<Service*>& services,
                                                      NewServerSsl ssl, const Telemetry& telemetry,
                                                      LoopThreads* loops) {
  // Room for a message, its prefix, and the start of the next one.
  constexpr uint32_t kWindowBeside = 1024;
  try {
    auto parts = std::make_unique<ServerParts>();
    parts->address = address;
    parts->shared.limits = limits;
    parts->shared.limits.connection.role = Role::kServer;
    parts->shared.limits.connection.traffic = &parts->shared.traffic;
    parts->shared.limits.connection.stream_bytes = kCallBytes;
    parts->shared.limits.connection.stream_window_bytes = limits.request_bytes + kWindowBeside;
    parts->shared.ssl = std::move(ssl);
    parts->shared.telemetry = telemetry;
    parts->loops = loops;
    if (absl::Status status = Prepare(*parts, services); !status.ok()) return status;
    // From here on its destructor stops what runs.
    std::unique_ptr<Server> server(new Server(std::move(parts)));
    server->parts_->loops->Run();
    return server;
  } catch (const std::bad_alloc&) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  } catch (const std::system_error& error) {
    return absl::UnavailableError(absl::StrCat("thread: ", error.what()));
  }
}

Server::Server(std::unique_ptr<ServerParts> parts) noexcept : parts_(std::move(parts)) {}

Server::~Server() { Shutdown(std::chrono::milliseconds(0)); }

const Address& Server::address() const noexcept { return parts_->address; }

size_t Server::connections() const noexcept { return parts_->shared.connections.load(); }

size_t Server::memory() const noexcept { return parts_->shared.memory->used(); }

size_t Server::waiting() const noexcept { return parts_->shared.waiting.load(); }

uint64_t Server::accepted() const noexcept { return parts_->shared.accepted.load(); }

const Traffic& Server::traffic() const noexcept { return parts_->shared.traffic; }

void Server::CloseConnections() noexcept {
  for (const auto& worker : parts_->workers) worker->CloseConnections();
}

void Server::Shutdown(std::chrono::milliseconds grace) noexcept {
  ServerParts& parts = *parts_;
  const auto deadline = EventLoop::Clock::now() + grace;
  // The first ones, if starting the threads has failed.
  const std::span running = std::span(parts.workers).first(parts.loops->running());
  if (!running.empty()) {
    // No connection is accepted after this has run, so none follows the workers' drain.
    std::unique_lock lock(parts.mutex);
    if (!std::exchange(parts.stopping, true)) running.front()->loop().Post(parts.stop_listening);
    parts.stopped.wait(lock, [&parts] { return !parts.listening; });
  }
  for (const auto& worker : running) worker->Drain(deadline);
  const std::lock_guard lock(shutdown_mutex_);
  for (const auto& worker : running) worker->Await();
  parts.acceptors.clear();
  parts.socket_file.reset();
}

}  // namespace cbt::rpc::http2
