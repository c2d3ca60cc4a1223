// Converts a plugin's errors for clients of a relay.
#ifndef CBT_RPC_RELAY_PLUGIN_ERRORS_H_
#define CBT_RPC_RELAY_PLUGIN_ERRORS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/rpc/telemetry.h"
#include "cbt/secrets.h"

namespace cbt::rpc {

// A plugin's text may hold anything: a secret in any form, contents of trailers, the path of its
// socket. So the client gets the code and a fixed sentence with an error id, and the text is logged
// under that id. Thread safe.
class PluginErrors {
 public:
  // `log` must outlive the object; it may be null, and then the text is dropped.
  explicit PluginErrors(LogSink* log = nullptr) : log_(log) {}

  // `error` as a client may see it. Text that resembles one of `secrets` is not logged either.
  absl::Status ForClient(const absl::Status& error, const Secrets& secrets) const noexcept;

 private:
  LogSink* log_;
};

// True if `text` holds part of a secret: at least half of it and four characters, or all of a
// shorter one; verbatim, in hexadecimal or base64, in any case and with any separators between the
// characters.
bool Resembles(std::string_view text, const Secrets& secrets);

}  // namespace cbt::rpc

#endif  // CBT_RPC_RELAY_PLUGIN_ERRORS_H_
