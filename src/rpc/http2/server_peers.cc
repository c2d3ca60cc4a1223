#include "rpc/http2/server_peers.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cbt/units.h"

namespace cbt::rpc::http2 {
namespace {

// A connection that has just come, or ended a call, is about to be used.
constexpr std::chrono::seconds kFresh{1};

// Sizes are similar within a power of two; below this, all are.
constexpr size_t kSmallestSize = 32 * kKiB;

}  // namespace

struct ServerPeers::Candidate {
  // Whether it goes before `other`.
  bool operator<(const Candidate& other) const noexcept {
    return std::make_tuple(!excess, fresh, other.size, peer->since) <
           std::make_tuple(!other.excess, other.fresh, size, other.peer->since);
  }
  Peer* peer;
  bool excess;
  bool fresh;
  int size;
};

void ServerPeers::Add(std::unique_ptr<Connection> connection, Clock::time_point now) {
  Connection* const key = connection.get();
  handshakes_.push_back({std::move(connection), &handshakes_, now});
  try {
    peers_.emplace(key, std::prev(handshakes_.end()));
  } catch (const std::bad_alloc&) {
    handshakes_.pop_back();
    throw;
  }
  ++replaceable_;
}

void ServerPeers::Remove(Connection& connection) noexcept {
  const auto found = peers_.find(&connection);
  const List::iterator at = found->second;
  if (at->list == &handshakes_ || at->list == &idle_) --replaceable_;
  leaving_ -= at->leaving;
  peers_.erase(found);
  at->list->erase(at);
}

void ServerPeers::Update(Connection& connection, Clock::time_point now) noexcept {
  const List::iterator at = peers_.find(&connection)->second;
  List* const from = at->list;
  List* const to = connection.serves() ? &served_ : connection.ready() ? &idle_ : &handshakes_;
  if (from == to || from == &gone_) return;
  if (from == &served_) {
    ++replaceable_;
    at->since = now;
  } else if (to == &served_) {
    --replaceable_;
  }
  at->list = to;
  if (from == &served_) return to->splice(to->end(), *from, at);
  // A handshake may end later than younger ones; what follows is close to the end.
  auto place = to->end();
  while (place != to->begin() && std::prev(place)->since > at->since) --place;
  to->splice(place, *from, at);
}

void ServerPeers::Leave(Peer& peer) noexcept {
  List* const from = std::exchange(peer.list, &gone_);
  if (from != &served_) --replaceable_;
  gone_.splice(gone_.end(), *from, peers_.find(peer.connection.get())->second);
  peer.leaving = peer.connection->memory();
  leaving_ += peer.leaving;
}

size_t ServerPeers::End(Peer& peer) noexcept {
  Leave(peer);
  peer.connection->MakeRoom();
  return peer.leaving;
}

bool ServerPeers::MakePlace() noexcept {
  List* list = &handshakes_;
  if (list->empty() || (!idle_.empty() && idle_.front().since < list->front().since)) list = &idle_;
  if (list->empty()) return false;
  End(list->front());
  return true;
}

size_t ServerPeers::MakeRoom(size_t bytes, size_t handshakes, const Connection* keep,
                             Clock::time_point now) noexcept {
  std::vector<Candidate> candidates;
  try {
    candidates.reserve(handshakes_.size() + idle_.size());
  } catch (const std::bad_alloc&) {
    return MakePlace() ? gone_.back().leaving : 0;
  }
  const auto add = [&](Peer& peer, bool excess) {
    const size_t units = peer.connection->memory() / kSmallestSize;
    if (peer.connection.get() == keep) return;
    candidates.push_back(
        {&peer, excess, now - peer.since < kFresh, static_cast<int>(std::bit_width(units))});
  };
  size_t held = 0;
  for (auto peer = handshakes_.rbegin(); peer != handshakes_.rend(); ++peer) {
    held += peer->connection->memory();
    add(*peer, held > handshakes);
  }
  for (Peer& peer : idle_) add(peer, false);
  std::sort(candidates.begin(), candidates.end());
  size_t ended = 0;
  for (const Candidate& candidate : candidates) {
    if (ended >= bytes) break;
    ended += End(*candidate.peer);
  }
  return ended;
}

size_t ServerPeers::EndLargest(size_t least) noexcept {
  Peer* largest = nullptr;
  size_t most = 0;
  for (List* const list : {&handshakes_, &idle_, &served_}) {
    for (Peer& peer : *list) {
      if (const size_t bytes = peer.connection->memory(); bytes >= std::max(least, most)) {
        largest = &peer;
        most = bytes;
      }
    }
  }
  if (largest == nullptr) return 0;
  Leave(*largest);
  largest->connection->Close(absl::Status(absl::StatusCode::kResourceExhausted, ""),
                             EndCause::kMemory);
  return largest->leaving;
}

}  // namespace cbt::rpc::http2
