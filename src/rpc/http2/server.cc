#include "rpc/http2/server.h"

#include <algorithm>
#include <new>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/acceptor.h"
#include "rpc/contract/server_event.h"
#include "rpc/http2/server_call_impl.h"
#include "rpc/http2/server_worker.h"

namespace cbt::rpc::http2 {

Server::Server(const net::Address& address, const ServerLimits& limits, NewServerSsl ssl,
               const Telemetry& telemetry, net::LoopThreads* loops)
    : address_(address), loops_(loops) {
  // Room for a message, its prefix, and the start of the next one.
  constexpr uint32_t kWindowBeside = 1024;
  shared_.limits = limits;
  shared_.limits.connection.role = Role::kServer;
  shared_.limits.connection.traffic = &shared_.traffic;
  shared_.limits.connection.stream_bytes = kCallBytes;
  shared_.limits.connection.stream_window_bytes = limits.request_bytes + kWindowBeside;
  shared_.ssl = std::move(ssl);
  shared_.telemetry = telemetry;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const net::Address& address,
                                                      const ServerLimits& limits,
                                                      const std::vector<Service*>& services,
                                                      NewServerSsl ssl, const Telemetry& telemetry,
                                                      net::LoopThreads* loops) {
  try {
    // Its destructor stops what runs.
    std::unique_ptr<Server> server(new Server(address, limits, std::move(ssl), telemetry, loops));
    if (absl::Status status = server->Prepare(services); !status.ok()) return status;
    server->loops_->Run();
    return server;
  } catch (const std::bad_alloc&) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  } catch (const std::system_error& error) {
    return absl::UnavailableError(absl::StrCat("thread: ", error.what()));
  }
}

absl::Status Server::Prepare(const std::vector<Service*>& services) {
  for (const Service* const service : services) {
    for (const Service::Method& method : service->methods()) {
      shared_.methods.emplace(method.path, &method);
    }
  }
  if (loops_ == nullptr) {
    auto loops = net::LoopThreads::Create(shared_.limits.loops);
    if (!loops.ok()) return loops.status();
    own_loops_ = *std::move(loops);
    loops_ = own_loops_.get();
  }
  shared_.workers = loops_->size();
  for (size_t i = 0; i < loops_->size(); ++i) {
    workers_.push_back(std::make_unique<ServerWorker>(shared_, loops_->loop(i), i));
  }
  return Listen();
}

absl::Status Server::Listen() {
  if (address_.is_unix) {
    auto file = net::SocketFile::Claim(address_.path);
    if (!file.ok()) return file.status();
    socket_file_ = *std::move(file);
  } else if (absl::Status status = net::ProbeTcpAddress(address_); !status.ok()) {
    return status;
  }
  auto sockets = net::ListenAt(address_);
  if (!sockets.ok()) return sockets.status();
  if (socket_file_ != nullptr) {
    if (absl::Status status = socket_file_->SetMode(); !status.ok()) return status;
  }
  for (OwnedDescriptor& socket : *sockets) {
    auto acceptor =
        net::Acceptor::Create(workers_.front()->loop(), std::move(socket),
                              [this](OwnedDescriptor connection) { Take(std::move(connection)); });
    if (!acceptor.ok()) return acceptor.status();
    acceptors_.push_back(*std::move(acceptor));
  }
  listening_ = true;
  return absl::OkStatus();
}

void Server::Take(OwnedDescriptor connection) noexcept {
  bool replaces = false;
  ServerWorker* worker = workers_[next_worker_++ % workers_.size()].get();
  if (shared_.connections.load() >= shared_.limits.connections) {
    replaces = true;
    for (size_t i = 1; i < workers_.size() && worker->replaceable() == 0; ++i) {
      worker = workers_[next_worker_++ % workers_.size()].get();
    }
  }
  ++shared_.connections;
  worker->AddConnection(std::move(connection), replaces);
}

void Server::StopListening() noexcept {
  acceptors_.clear();
  const std::lock_guard lock(mutex_);
  listening_ = false;
  stopped_.notify_all();
}

Server::~Server() { Shutdown(std::chrono::milliseconds(0)); }

const net::Address& Server::address() const noexcept { return address_; }

size_t Server::connections() const noexcept { return shared_.connections.load(); }

size_t Server::memory() const noexcept { return shared_.memory->used(); }

size_t Server::waiting() const noexcept { return shared_.waiting.load(); }

uint64_t Server::accepted() const noexcept { return shared_.accepted.load(); }

const Traffic& Server::traffic() const noexcept { return shared_.traffic; }

void Server::CloseConnections() noexcept {
  for (const auto& worker : workers_) worker->CloseConnections();
}

void Server::Shutdown(std::chrono::milliseconds grace) noexcept {
  const auto deadline = net::EventLoop::Clock::now() + grace;
  // The first ones, if starting the threads has failed.
  const std::span running = std::span(workers_).first(loops_ == nullptr ? 0 : loops_->running());
  if (!running.empty()) {
    // No connection is accepted after this has run, so none follows the workers' drain.
    std::unique_lock lock(mutex_);
    if (!std::exchange(stopping_, true)) running.front()->loop().Post(stop_listening_);
    stopped_.wait(lock, [this] { return !listening_; });
  }
  for (const auto& worker : running) worker->Drain(deadline);
  const std::lock_guard lock(shutdown_mutex_);
  for (const auto& worker : running) worker->Await();
  acceptors_.clear();
  socket_file_.reset();
}

}  // namespace cbt::rpc::http2
