// A preloaded library that loads a program once and runs it many times: the program stops before
// main() and forks a copy for each request. Loading some seventy libraries takes longer than most
// commands of the tests. warm.py is the other side.
//
//   CBT_WARM_SOCKET  the descriptor of a socket (SOCK_SEQPACKET). Without it the program just runs.
//
// A request is one packet with the descriptors of standard input, output and error:
// "<arguments>\0<folder>\0", then the arguments and the environment, each ended by \0. The answers
// are the copy's process id and, once it has ended, its status as waitpid() gives it, both int32.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);

constexpr size_t kMaxRequest = 128 * 1024;

[[noreturn]] void GiveUp(const char* what) {
  dprintf(2, "warm_start: %s: %s\n", what, strerror(errno));
  _exit(70);
}

// The C library's own functions: another preloaded library may have made these fail.
template <typename Function>
Function* Real(const char* name) {
  static void* const library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) GiveUp(name);
  return reinterpret_cast<Function*>(found);
}

struct Request {
  std::vector<char> text = std::vector<char>(kMaxRequest);
  size_t bytes = 0;
  int streams[3] = {-1, -1, -1};
};

// Returns false when the other side is gone.
bool Receive(int socket, Request& request) {
  static auto* const receive = Real<decltype(recvmsg)>("recvmsg");
  iovec part = {request.text.data(), request.text.size() - 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(request.streams))];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t bytes = 0;
  do {
    bytes = receive(socket, &message, 0);
  } while (bytes < 0 && errno == EINTR);
  if (bytes == 0) return false;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (bytes < 0 || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || header == nullptr ||
      header->cmsg_len != CMSG_LEN(sizeof(request.streams))) {
    GiveUp("no request");
  }
  memcpy(request.streams, CMSG_DATA(header), sizeof(request.streams));
  request.bytes = static_cast<size_t>(bytes);
  request.text[request.bytes] = '\0';
  return true;
}

void Answer(int socket, int32_t number) {
  static auto* const give = Real<decltype(send)>("send");
  give(socket, &number, sizeof(number), MSG_NOSIGNAL);
}

// Becomes the requested process. Returns argv, followed by its environment as at a program's start.
std::vector<char*> Become(Request& request, int& argc) {
  static auto* const duplicate = Real<decltype(dup2)>("dup2");
  static auto* const shut = Real<decltype(close)>("close");
  for (int i = 0; i < 3; ++i) {
    if (duplicate(request.streams[i], i) < 0) GiveUp("dup2");
  }
  for (const int stream : request.streams) shut(stream);
  std::vector<char*> texts;
  char* const end = request.text.data() + request.bytes;
  for (char* text = request.text.data(); text < end; text += strlen(text) + 1) {
    texts.push_back(text);
  }
  if (texts.size() < 2) GiveUp("malformed request");
  argc = atoi(texts[0]);
  if (chdir(texts[1]) != 0) GiveUp(texts[1]);
  texts.erase(texts.begin(), texts.begin() + 2);
  texts.insert(texts.begin() + argc, nullptr);
  texts.push_back(nullptr);
  return texts;
}

}  // namespace

extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*at_exit)(), void* stack) {
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  const char* const number = getenv("CBT_WARM_SOCKET");
  if (number == nullptr) return start(main, argc, argv, init, fini, at_exit, stack);
  const int socket = atoi(number);
  for (;;) {
    auto* const request = new Request();  // a copy's argv is in it
    if (!Receive(socket, *request)) _exit(0);
    const pid_t child = fork();
    if (child < 0) GiveUp("fork");
    if (child == 0) {
      Real<decltype(close)>("close")(socket);
      auto* const texts = new std::vector<char*>(Become(*request, argc));
      environ = texts->data() + argc + 1;
      return start(main, argc, texts->data(), init, fini, at_exit, stack);
    }
    for (const int stream : request->streams) Real<decltype(close)>("close")(stream);
    delete request;
    Answer(socket, child);
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
      if (errno != EINTR) GiveUp("waitpid");
    }
    Answer(socket, status);
  }
}
