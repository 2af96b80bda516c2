// SPDX-License-Identifier: GPL-3.0-or-later
// Random streams through the reader of messages, and random messages between two ends of a connection that
// other threads write to: built with sanitizers and run by test_random_programs.py.
//
//     fuzz ROUNDS SEED
//
// Prints what it has seen; the exit status is 1, with what is wrong on standard error, if something does not
// hold.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fuzzing.h"
#include "header/headers.h"
#include "zmtp/channel.h"
#include "zmtp/hub.h"
#include "zmtp/reader.h"
#include "zmtp/stream.h"

namespace wavefront {

using namespace wire;
namespace {

using Body = std::vector<unsigned char>;

constexpr MessageLimits kLimits{5000, 9000, 6};

Body body_of(std::size_t size, Random& random) {
  Body body(size);
  for (unsigned char& byte : body) byte = static_cast<unsigned char>(random());
  return body;
}

void put_frame(Body& to, unsigned char flags, const Body& body, Random& random) {
  if (body.size() > 255 || below(random, 4) == 0) {
    to.push_back(flags | 2);
    for (int shift = 56; shift >= 0; shift -= 8)
      to.push_back(static_cast<unsigned char>(body.size() >> shift));
  } else {
    to.push_back(flags);
    to.push_back(static_cast<unsigned char>(body.size()));
  }
  to.insert(to.end(), body.begin(), body.end());
}

Body text(std::string_view characters) {
  return {characters.begin(), characters.end()};
}

struct ByteStream {
  Body bytes;
  std::vector<std::vector<Body>> messages;
  std::optional<Ending> ending;  // that is due
};

ByteStream any_stream(Random& random) {
  ByteStream stream{Body(kGreetingBytes), {}, {}};
  stream.bytes[0] = 0xFF;
  stream.bytes[9] = 0x7F;
  stream.bytes[10] = 3;
  stream.bytes[11] = 1;
  std::memcpy(&stream.bytes[12], "NULL", 4);
  put_frame(stream.bytes, 4, text("\5READY"), random);
  for (std::size_t messages = below(random, 20); messages > 0 && !stream.ending; --messages) {
    const std::size_t parts = 1 + below(random, 7);
    std::vector<Body> message;
    std::size_t bytes = 0;
    for (std::size_t part = 0; part < parts && !stream.ending; ++part) {
      if (below(random, 8) == 0) put_frame(stream.bytes, 4, text("\4PING\1\1context"), random);
      if (below(random, 8) == 0) put_frame(stream.bytes, 4, body_of(1 + below(random, 3), random), random);
      const std::size_t size = below(random, 3) == 0 ? below(random, 5100) : below(random, 300);
      message.push_back(body_of(size, random));
      put_frame(stream.bytes, part + 1 < parts ? 1 : 0, message.back(), random);
      bytes += size;
      if (size > kLimits.frame_bytes) {
        stream.ending = Ending::kFrame;
      } else if (part >= kLimits.message_frames) {
        stream.ending = Ending::kParts;
      } else if (bytes > kLimits.message_bytes) {
        stream.ending = Ending::kMessage;
      }
    }
    if (!stream.ending) stream.messages.push_back(std::move(message));
  }
  return stream;
}

bool same(const Message& came, const std::vector<Body>& sent) {
  return std::equal(came.begin(), came.end(), sent.begin(), sent.end(), [](const Frame& a, const Body& b) {
    return a.size == b.size() && std::equal(b.begin(), b.end(), a.bytes.get());
  });
}

// Reads a stream in pieces of any size, some of them where the reader has its frame.
std::size_t read_in_pieces(const ByteStream& stream, Random& random) {
  MessageReader reader(kLimits);
  std::optional<Ending> ending;
  std::size_t direct = 0;
  for (std::size_t at = 0; at < stream.bytes.size() && !ending;) {
    const auto rest = reader.rest();
    const std::size_t left = stream.bytes.size() - at;
    if (!rest.empty() && below(random, 2) == 0) {
      const std::size_t size = std::min(left, 1 + below(random, rest.size()));
      std::memcpy(rest.data(), &stream.bytes[at], size);
      reader.fill(size);
      at += size;
      direct += size;
      continue;
    }
    const std::size_t size = std::min(left, 1 + below(random, below(random, 2) == 0 ? 3 : 1000));
    ending = reader.read({&stream.bytes[at], size});
    at += size;
  }
  require(ending == stream.ending, "a stream ends for the reason that it has");
  for (const auto& message : stream.messages) {
    const auto came = reader.take();
    require(came && same(*came, message), "messages come as they were sent");
  }
  require(!reader.take(), "and no others");
  return direct;
}

// Damaged streams end, or do not; nothing else may happen.
std::size_t read_damaged(ByteStream stream, Random& random) {
  for (std::size_t hits = 1 + below(random, 5); hits > 0; --hits)
    stream.bytes[below(random, stream.bytes.size())] = static_cast<unsigned char>(random());
  MessageReader reader(kLimits);
  const bool ends = reader.read(stream.bytes).has_value();
  while (reader.take()) continue;
  return ends;
}

// Headers of evaluations and of results, cut and damaged: they are read or not.
std::size_t read_headers(Random& random) {
  std::size_t read = 0;
  for (const std::string_view header :
       {std::string_view("\x86\xA4type\xA8"
                         "evaluate\xA2id\xCD\x01\x02\xA5"
                         "count\x03\xA5"
                         "class\xA4play\xA7network\xA3net\xAB"
                         "deadline_ms\xCA\x40\x20\x00\x00",
                         68),
        std::string_view("\x86\xA4type\xA6result\xA2id\x01\xA8queue_ms\xCB\x3F\xF0\x00\x00\x00\x00\x00\x00"
                         "\xAA"
                         "compute_ms\x01\xA5"
                         "batch\xCC\xFF\xA8instance\xA2"
                         "ab",
                         67)}) {
    Body bytes = text(header);
    bytes.resize(below(random, 4) == 0 ? below(random, bytes.size() + 1) : bytes.size());
    for (std::size_t hits = below(random, 3); hits > 0 && !bytes.empty(); --hits)
      bytes[below(random, bytes.size())] = static_cast<unsigned char>(random());
    read += evaluate_header(bytes).has_value() + result_header(bytes).has_value();
  }
  return read;
}

bool send(auto& to, std::uint64_t number, const std::vector<Body>& message) {
  std::vector<Bytes> frames(message.begin(), message.end());
  if constexpr (requires { to.send(number, frames); }) {
    return to.send(number, frames);
  } else {
    return to.send(frames);
  }
}

// Clients of one hub in threads of their own, which send and are answered from another thread than the one
// that serves the hub. Some go in the middle.
std::size_t converse(Random& random, const std::string& name) {
  constexpr MessageLimits kLarge{300'000, 600'000, 6};
  constexpr int kClients = 3, kMessages = 20;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, name.size());
  Descriptor listener(socket(AF_UNIX, SOCK_STREAM, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  require(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0, "an address is free");
  require(listen(listener.get(), 8) == 0, "it can be listened at");
  Hub hub({kLarge, 1 << 20, 8});
  hub.listen(std::move(listener));
  std::atomic<int> left = kClients;
  std::atomic<std::size_t> answered = 0;
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, seed = random(), client] {
      Random own(seed);
      Stream stream(name, kLarge);
      for (int i = 0; i < kMessages; ++i) {
        std::vector<Body> message;
        for (std::size_t parts = 1 + below(own, 4); parts > 0; --parts)
          message.push_back(body_of(below(own, below(own, 4) == 0 ? 200'000 : 200), own));
        require(send(stream, 0, message), "the hub is there");
        if (client == 0 && i == kMessages / 2) break;  // without the answer
        require(stream.wait(std::nullopt, -1) == Stream::Found::kMessage, "each is answered");
        require(same(stream.take(), message), "with itself");
        ++answered;
      }
      --left;
    });
  }
  std::vector<std::thread> answers;
  while (left > 0 || hub.size() > 0) {
    hub.wait(10);
    while (auto arrived = hub.take()) {
      answers.emplace_back([&hub, came = std::make_shared<Arrived>(std::move(*arrived))] {
        hub.send(came->number, frames_of(came->message));
      });
    }
  }
  for (std::thread& each : answers) each.join();
  for (std::thread& each : clients) each.join();
  require(hub.wait(0) == false && !hub.take() && hub.ended().size() == kClients, "all ends are told");
  return answered;
}

int run(std::size_t rounds, std::uint64_t seed) {
  Random random(seed);
  std::size_t messages = 0, direct = 0, endings = 0, damaged = 0, headers = 0, answered = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    const ByteStream stream = any_stream(random);
    messages += stream.messages.size();
    endings += stream.ending.has_value();
    direct += read_in_pieces(stream, random);
    damaged += read_damaged(stream, random);
    headers += read_headers(random);
    if (round % 100 == 0) {
      const std::string name =
          std::string(1, '\0') + "wavefront-fuzz-" + std::to_string(getpid()) + "-" + std::to_string(round);
      answered += converse(random, name);
    }
  }
  std::printf("%zu messages %zu direct %zu endings %zu damaged %zu headers %zu answered\n", messages, direct,
              endings, damaged, headers, answered);
  return 0;
}

}  // namespace
}  // namespace wavefront

int main(int count, char** arguments) {
  if (count != 3) return 2;
  return wavefront::run(std::strtoull(arguments[1], nullptr, 10), std::strtoull(arguments[2], nullptr, 10));
}
