// Ends a thread of the process's when the process exits.
#ifndef CBT_NET_JOIN_AT_EXIT_H_
#define CBT_NET_JOIN_AT_EXIT_H_

#include <openssl/ssl.h>

namespace cbt::net {

// A static object of it joins the one thread of `Owner`, which has Get() and Join().
template <typename Owner>
struct JoinAtExit {
  // OpenSSL's own exit handlers then run after the thread has ended.
  JoinAtExit() { OPENSSL_init_ssl(0, nullptr); }
  ~JoinAtExit() { Owner::Get().Join(); }
  JoinAtExit(const JoinAtExit&) = delete;
  JoinAtExit& operator=(const JoinAtExit&) = delete;
};

}  // namespace cbt::net

#endif  // CBT_NET_JOIN_AT_EXIT_H_
