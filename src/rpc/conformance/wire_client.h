// An HTTP/2 client that sends whatever frames a rule needs, including invalid ones.
#ifndef CBT_RPC_CONFORMANCE_WIRE_CLIENT_H_
#define CBT_RPC_CONFORMANCE_WIRE_CLIENT_H_

#include <nghttp2/nghttp2.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/rpc/options.h"
#include "cbt/units.h"
#include "net/address.h"
#include "net/socket_stream.h"

namespace cbt::rpc {

using WireFields = std::vector<std::pair<std::string, std::string>>;

// The only value of `name`; nullopt if it is missing or repeated.
std::optional<std::string> OnlyField(const WireFields& fields, std::string_view name);

// Everything a stream has received so far.
struct WireAnswer {
  WireFields headers = {};
  WireFields trailers = {};  // the headers, if there are no others ("Trailers-Only")
  std::string body = {};
  size_t blocks = 0;  // of headers, 1xx left out
  bool ended = false;
  std::optional<uint32_t> reset = {};
  int64_t window = 0;  // bytes that the server may still send
  bool overran = false;
  bool dead = false;           // the server has had time to process the reset
  size_t frames_of_death = 0;  // received for it afterwards

  // Whether headers that are not the last block have a grpc-status.
  bool early_status() const;
  bool over() const noexcept { return ended || reset.has_value(); }
  // The status that a gRPC client would report; OK only if the answer is complete.
  absl::Status status() const;
};

// Belongs to one thread. Functions that wait give up at the time limit.
class WireClient {
 public:
  struct Options {
    std::chrono::milliseconds timeout = std::chrono::seconds(60);  // for everything together
    uint32_t stream_window = 0x7fffffff;                           // bytes
    size_t max_body = kGiB;                                        // longer answers are a failure
  };

  // Connects, and sends the preface and SETTINGS. UNAVAILABLE and INVALID_ARGUMENT as a channel has
  // them.
  static absl::StatusOr<std::unique_ptr<WireClient>> Connect(const net::Address& address,
                                                             const ClientTlsOptions& tls,
                                                             const Options& options);
  ~WireClient();
  WireClient(const WireClient&) = delete;
  WireClient& operator=(const WireClient&) = delete;

  // The fields of a valid request, and a message with its prefix.
  WireFields Request(const std::string& path) const;
  static std::string Framed(std::string_view message, char flag = 0);

  // Sends; a failure is kept, see failure().
  void Send(std::string_view bytes);
  void Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload);
  void Headers(uint32_t stream, const WireFields& fields, bool end = false);
  void Data(uint32_t stream, std::string_view bytes, bool end);
  void Reset(uint32_t stream);
  void OpenWindow(uint32_t stream, uint32_t bytes);
  // SETTINGS: the window of each stream, including open ones; never less than before.
  void WidenStreams(uint32_t window);
  void Goaway();
  // Headers and one message.
  void Call(uint32_t stream, const std::string& path, std::string_view message);

  // Reads until `done`; false at the time limit, or if the connection has ended.
  bool Await(absl::FunctionRef<bool()> done);
  // Reads to the end of the stream, opening its window by at most `step` bytes whenever it is used
  // up.
  bool AwaitEnd(uint32_t stream, uint32_t step = 0);
  // Sends a PING and waits for its answer: everything sent before has then arrived. False if there
  // is no answer, or a wrong one.
  bool Ping();

  const WireAnswer& answer(uint32_t stream) const { return answers_.at(stream); }
  // Counts frames that arrive for the stream from now on.
  void MarkDead(uint32_t stream) { answers_.at(stream).dead = true; }

  bool settings_came_first() const noexcept { return settings_came_first_; }
  size_t acknowledgements() const noexcept { return acknowledgements_; }
  // Why the connection is unusable; empty if it is usable.
  const std::string& failure() const noexcept { return failure_; }
  // Whether failure() is the time limit.
  bool late() const noexcept { return late_; }

 private:
  using Clock = std::chrono::steady_clock;

  WireClient(std::unique_ptr<net::SocketStream> socket, const Options& options, bool secure,
             std::string authority, Clock::time_point deadline);
  bool Wait(net::SocketStream::State state);
  bool Handshake();
  bool ReadFrame();
  bool ReadBytes();
  void OnFrame(uint8_t type, uint8_t flags, uint32_t stream, std::string payload);
  void OnBlock(uint32_t stream);
  void OnData(WireAnswer& answer, std::string_view payload, size_t bytes, bool end);
  void Fail(std::string why);

  const std::unique_ptr<net::SocketStream> socket_;
  const Options options_;
  const bool secure_;
  const std::string authority_;
  const Clock::time_point deadline_;
  nghttp2_hd_deflater* deflater_ = nullptr;
  nghttp2_hd_inflater* inflater_ = nullptr;
  std::string received_;
  std::map<uint32_t, WireAnswer> answers_;
  std::string block_;  // of headers, until it is complete
  bool block_ends_stream_ = false;
  uint32_t stream_window_;
  int64_t connection_window_ = 0;
  std::string pong_;
  uint64_t pings_ = 0;
  size_t frames_ = 0;
  size_t acknowledgements_ = 0;
  bool settings_came_first_ = false;
  std::string failure_;
  bool connected_ = false;
  bool refuses_ = false;  // nothing more can be sent
  bool late_ = false;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONFORMANCE_WIRE_CLIENT_H_
