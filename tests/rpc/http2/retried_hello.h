// Two ClientHellos on one connection, the second of which announces any length.
#ifndef CBT_TESTS_RPC_HTTP2_RETRIED_HELLO_H_
#define CBT_TESTS_RPC_HTTP2_RETRIED_HELLO_H_

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace cbt::test {

// A sound hello of TLS 1.3 whose only key is of a group that no server knows. It also offers P-256,
// so that a server asks for another one.
inline std::string HelloToRetry(const std::string& protocols) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set1_groups_list(context, "X25519:P-256");
  SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(protocols.data()),
                          static_cast<unsigned int>(protocols.size()));
  SSL* const ssl = SSL_new(context);
  SSL_set_connect_state(ssl);
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
  SSL_do_handshake(ssl);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out, &data);
  std::string hello(data, static_cast<size_t>(size));
  SSL_free(ssl);
  SSL_CTX_free(context);
  // supported_groups and key_share.
  const std::string groups("\0\x0a\0\x06\0\x04\0\x1d\0\x17", 10);
  const std::string share("\0\x33\0\x26\0\x24\0\x1d\0\x20", 10);
  for (const std::string& extension : {groups, share}) {
    const size_t at = hello.find(extension);
    if (at == std::string::npos) throw std::runtime_error("an unexpected hello");
    hello.replace(at + 6, 2, "jj");
  }
  return hello;
}

// What a HelloRetryRequest has in place of a random number (RFC 8446, section 4.1.3).
inline bool AsksToRetry(const std::string& answer) {
  return answer.find("\xcf\x21\xad\x74\xe5\x9a\x61\x11") != std::string::npos;
}

// The second one: its header, which announces `bytes`, and `sent` bytes of it.
inline std::string SecondHello(size_t bytes, size_t sent) {
  std::string second("\x14\x03\x03\0\x01\x01\x16\x03\x03", 9);
  const size_t record = 4 + sent;
  second += static_cast<char>(record >> 8 & 0xff);
  second += static_cast<char>(record & 0xff);
  second += '\1';
  for (const int shift : {16, 8, 0}) second += static_cast<char>(bytes >> shift & 0xff);
  return second + std::string(sent, '\0');
}

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_HTTP2_RETRIED_HELLO_H_
