// SPDX-License-Identifier: GPL-3.0-or-later
// Random streams through the gate's reader of frames, its queue and its accounts: built with sanitizers and
// run by test_gate_fuzz.py.
//
//     fuzz ROUNDS SEED
//
// Prints what it has seen; the exit status is 1, with what is wrong on standard error, if something does not
// hold.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fuzzing.h"
#include "gate/admission.h"
#include "gate/blocks.h"
#include "gate/byte_account.h"
#include "gate/turns.h"
#include "gate/zmtp.h"

namespace wavefront {

using namespace wire;
using namespace gate;
namespace {

using Bytes = std::vector<unsigned char>;

constexpr MessageLimits kLimits{5000, 9000, 6};

constexpr ConnectionLimits kConnections{40, 6};

void put_frame(Bytes& to, unsigned char flags, std::size_t size, Random& random) {
  if (size > 255 || below(random, 4) == 0) {
    to.push_back(flags | 2);
    for (int shift = 56; shift >= 0; shift -= 8) to.push_back(static_cast<unsigned char>(size >> shift));
  } else {
    to.push_back(flags);
    to.push_back(static_cast<unsigned char>(size));
  }
  for (std::size_t i = 0; i < size; ++i) to.push_back(static_cast<unsigned char>(random()));
}

struct Stream {
  Bytes bytes;
  std::int64_t cost = 0;         // of the frames of messages
  std::optional<Ending> ending;  // that is due
};

Bytes greeting(bool curve) {
  Bytes bytes(64, 0);
  bytes[0] = 0xFF;
  bytes[9] = 0x7F;
  bytes[10] = 3;
  const std::string name = curve ? "CURVE" : "NULL";
  std::copy(name.begin(), name.end(), bytes.begin() + 12);
  return bytes;
}

Stream null_stream(Random& random) {
  Stream stream{greeting(false), 0, {}};
  put_frame(stream.bytes, 4, below(random, 100), random);
  for (std::size_t messages = below(random, 20); messages > 0 && !stream.ending; --messages) {
    const std::size_t parts = 1 + below(random, 7);
    std::size_t bytes = 0;
    for (std::size_t part = 0; part < parts && !stream.ending; ++part) {
      if (below(random, 8) == 0) put_frame(stream.bytes, 4, below(random, 30), random);  // a heartbeat
      const std::size_t size = below(random, 3) == 0 ? below(random, 5100) : below(random, 300);
      put_frame(stream.bytes, part + 1 < parts ? 1 : 0, size, random);
      bytes += size;
      if (size > kLimits.frame_bytes) {
        stream.ending = Ending::kFrame;
      } else if (part >= kLimits.message_frames) {
        stream.ending = Ending::kParts;
      } else if (bytes > kLimits.message_bytes) {
        stream.ending = Ending::kMessage;
      } else {
        stream.cost += static_cast<std::int64_t>(size) + kFrameCost;
      }
    }
  }
  return stream;
}

Stream curve_stream(Random& random) {
  Stream stream{greeting(true), 0, {}};
  put_frame(stream.bytes, 4, 200, random);
  put_frame(stream.bytes, 4, 300, random);
  for (std::size_t frames = below(random, 60); frames > 0; --frames) {
    const std::size_t size = below(random, 300);
    put_frame(stream.bytes, 0, size + 33, random);
    stream.cost += cost_of(size, Mechanism::kCurve);
  }
  return stream;
}

// Reads a stream in pieces of any size.
void read_in_pieces(const Stream& stream, Random& random) {
  FrameReader reader(kLimits);
  std::optional<Ending> ending;
  std::int64_t cost = 0;
  for (std::size_t at = 0; at < stream.bytes.size() && !ending;) {
    const std::size_t most = below(random, 2) == 0 ? 3 : 1000;
    const std::size_t size = std::min(stream.bytes.size() - at, 1 + below(random, most));
    ending = reader.read(stream.bytes.data() + at, size);
    at += size;
    cost += reader.take_cost();
    require(reader.has_signature() == (at >= 10), "the signature is ten bytes");
  }
  require(ending == stream.ending, "a stream ends for the reason that it has");
  require(cost == stream.cost, "frames cost their bytes, however they come");
}

// Damaged streams end, or do not; nothing else may happen.
std::size_t read_damaged(Stream stream, Random& random) {
  for (std::size_t hits = 1 + below(random, 5); hits > 0; --hits)
    stream.bytes[below(random, stream.bytes.size())] = static_cast<unsigned char>(random());
  FrameReader reader(kLimits);
  return reader.read(stream.bytes.data(), stream.bytes.size()).has_value();
}

void queue(Random& random) {
  BlockQueue blocks;
  std::uint64_t written = 0;
  std::uint64_t read = 0;
  Bytes piece;
  for (int step = 0; step < 200; ++step) {
    piece.resize(below(random, 200'000));
    for (unsigned char& byte : piece) byte = static_cast<unsigned char>(written++ * 31);
    require(blocks.append(piece.data(), piece.size()), "there is memory");
    for (std::size_t reads = below(random, 4); reads > 0 && !blocks.empty(); --reads) {
      const auto front = blocks.front();
      require(!front.empty(), "what is there can be seen");
      const std::size_t size = below(random, 2) == 0 ? front.size() : 1 + below(random, front.size());
      for (std::size_t i = 0; i < size; ++i)
        require(front[i] == static_cast<unsigned char>(read++ * 31), "bytes come out as they went in");
      blocks.pop(size);
    }
    require(blocks.size() == written - read, "the size is what is left");
  }
}

// A gate's thread and a service's at one account: in the end nothing is counted that is not there.
void account(std::uint64_t seed) {
  const auto board = std::make_shared<Board>(kConnections);
  ByteAccount link(1 << 16, "127.0.0.1", Door::kPublic, {10'000, 50'000, 40'000}, board);
  link.speaks(Mechanism::kNull);
  constexpr int kSteps = 3000;
  std::thread service([&] {
    Random random(seed);
    for (int step = 0; step < kSteps; ++step) {
      const auto bytes = static_cast<std::int64_t>(below(random, 5000));
      if (link.charge(bytes)) link.answer(bytes, 0);
      link.took(static_cast<std::int64_t>(below(random, 200)));
    }
  });
  Random random(seed + 1);
  std::int64_t waiting = 0;
  for (int step = 0; step < kSteps; ++step) {
    link.relayed(static_cast<std::int64_t>(below(random, 200)), 1);
    const auto brought = static_cast<std::int64_t>(below(random, 500));
    link.brought(brought, brought / 2);
    waiting += brought / 2;
    const auto read = static_cast<std::int64_t>(below(random, static_cast<std::size_t>(waiting) + 1));
    link.read(read);
    waiting -= read;
    board->bell.answer();
  }
  service.join();
  require(link.held() == 0, "what is released is not held");
  require(link.unread() == waiting, "what waits is unread");
  require(board->buffered == link.arriving() + link.unread(), "the board has the sum");
  link.end();
  link.took(100);
  require(board->buffered == 0, "what has ended counts nothing");
}

// A message of tiny frames under CURVE, which nobody can tell from heartbeats, is left outside before what is
// kept of it is more than may arrive, however slowly it comes.
void check_opaque_frames() {
  constexpr std::int64_t kArriving = 32'768, kFrameBytes = 64;
  ByteAccount link(1, "a client", Door::kPublic, {kArriving, 1'000'000, 1'000'000},
                   std::make_shared<Board>(kConnections));
  link.speaks(Mechanism::kCurve);
  for (int message = 0; message < 2; ++message) {
    for (std::int64_t frames = 1; frames < kArriving / kFrameBytes; ++frames)
      require(link.relayed(0, 1), "what may arrive does");
    require(!link.relayed(0, 1), "and no more");
    link.took(0);
  }
}

// A service lets a client in while the gate wants its place: one of them has it.
void contend(std::uint64_t seed) {
  const auto board = std::make_shared<Board>(kConnections);
  Random random(seed);
  for (int step = 0; step < 100; ++step) {
    ByteAccount link(1, "127.0.0.1", Door::kPublic, {10'000, 50'000, 40'000}, board);
    std::thread service([&] { require(link.establish(false), "there is room"); });
    const bool dismissed = link.dismiss();
    service.join();
    require(dismissed != link.is_established(), "it is let in, or it ends");
    board->bell.answer();
    link.end();
    require(board->roll.room(Door::kPublic) == kConnections.connections, "nobody is left");
  }
}

// The connections of one door as a list, the newest last.
struct Model {
  struct Connection {
    std::uint64_t number;
    std::string source;
    bool proven;
  };
  std::vector<Connection> connections;

  // The oldest connection of the source that has the most; among equals, the one that is oldest.
  std::optional<std::uint64_t> victim(bool proven) const {
    std::map<std::string, std::size_t> counts;
    for (const Connection& each : connections) counts[each.source] += each.proven == proven;
    std::optional<std::uint64_t> found;
    std::size_t most = 0;
    for (const Connection& each : connections) {
      if (each.proven != proven || counts[each.source] <= most) continue;
      most = counts[each.source];
      found = each.number;
    }
    return found;
  }
};

// Whoever makes room is who the rule says, and there are never more connections than it allows.
std::size_t admit(Random& random) {
  Roll roll(kConnections);
  Admission admission(kConnections, roll);
  Model model;
  std::size_t established = 0, displacements = 0;
  const auto drop = [&](std::uint64_t number) {
    std::erase_if(model.connections, [number](const auto& each) { return each.number == number; });
    admission.remove(number);
  };
  for (std::uint64_t number = 1; number < 600; ++number) {
    const std::string source(1, static_cast<char>('a' + below(random, 1 + below(random, 30))));
    while (const auto displaced = admission.displaced_by(Door::kPublic, source)) {
      const auto mine =
          std::count_if(model.connections.begin(), model.connections.end(),
                        [&](const auto& each) { return each.source == source && !each.proven; });
      if (static_cast<std::size_t>(mine) < kConnections.per_source) {
        const auto stranger = model.victim(false);
        require(displaced == (stranger ? stranger : model.victim(true)), "the rule names who makes room");
      }
      drop(*displaced);
      ++displacements;
    }
    admission.add(number, Door::kPublic, source);
    model.connections.push_back({number, source, false});
    require(model.connections.size() <= roll.room(Door::kPublic), "there are no more than may be");
    auto& any = model.connections[below(random, model.connections.size())];
    const std::size_t choice = below(random, 6);
    if (choice == 0 && !any.proven) {
      admission.touch(any.number);
      std::rotate(model.connections.begin() + (&any - model.connections.data()),
                  model.connections.begin() + (&any - model.connections.data()) + 1, model.connections.end());
    } else if (choice == 1 && !any.proven) {
      admission.prove(any.number);
      any.proven = true;
      std::rotate(model.connections.begin() + (&any - model.connections.data()),
                  model.connections.begin() + (&any - model.connections.data()) + 1, model.connections.end());
    } else if (choice == 2 && roll.enter(Door::kPublic, below(random, 2) == 0)) {
      drop(any.number);
      ++established;
    } else if (choice == 3 && established > 0) {
      roll.leave(Door::kPublic);
      --established;
    }
  }
  return displacements;
}

// Sources are served in turns, and numbers of one source in their order.
void take_turns(Random& random) {
  Turns turns;
  std::map<std::string, std::vector<std::uint64_t>> waiting;
  for (std::uint64_t number = 1; number < 400; ++number) {
    const std::string source(1, static_cast<char>('a' + below(random, 5)));
    turns.push(source, number);
    waiting[source].push_back(number);
    auto& some = waiting[source];
    if (below(random, 4) == 0) {
      const std::size_t at = below(random, some.size());
      turns.remove(source, some[at]);
      some.erase(some.begin() + static_cast<std::ptrdiff_t>(at));
    }
    if (turns.empty() || below(random, 3) == 0) continue;
    const std::uint64_t next = turns.pop();
    bool is_first = false;
    for (auto& [name, numbers] : waiting) {
      if (numbers.empty() || numbers.front() != next) continue;
      is_first = true;
      numbers.erase(numbers.begin());
    }
    require(is_first, "the first of a source is served");
  }
}

// What a service sends is followed in pieces of any size.
void follow_handshake(Random& random) {
  Bytes bytes = greeting(true);
  put_frame(bytes, 4, 168, random);
  const std::size_t before = bytes.size();
  const bool ready = below(random, 2) == 0;
  const std::string name = ready ? "\5READY" : "\5ERROR";
  bytes.insert(bytes.end(), {4, static_cast<unsigned char>(name.size() + 4)});
  bytes.insert(bytes.end(), name.begin(), name.end());
  bytes.insert(bytes.end(), 4, 0);
  HandshakeReader reader;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min(bytes.size() - at, 1 + below(random, 90));
    reader.read(bytes.data() + at, size);
    at += size;
    require(reader.greeting_bytes() == std::min<std::size_t>(at, 64), "the greeting is 64 bytes");
    require(!reader.is_ready() || at >= before + 2 + name.size(), "READY is not seen before it is there");
  }
  require(reader.is_ready() == ready && reader.is_between_frames(), "the handshake is over");
}

}  // namespace
}  // namespace wavefront

int main(int, char** arguments) {
  using namespace wavefront;
  const int rounds = std::atoi(arguments[1]);
  Random random(std::strtoull(arguments[2], nullptr, 10));
  std::size_t cut = 0, whole = 0, damaged = 0, curve = 0, displaced = 0;
  check_opaque_frames();
  for (int round = 0; round < rounds; ++round) {
    const Stream stream = null_stream(random);
    read_in_pieces(stream, random);
    ++(stream.ending ? cut : whole);
    damaged += read_damaged(stream, random);
    read_in_pieces(curve_stream(random), random);
    ++curve;
    follow_handshake(random);
    if (round % 100 == 0) {
      queue(random);
      account(random());
      contend(random());
      displaced += admit(random);
      take_turns(random);
    }
  }
  std::printf("cut %zu whole %zu damaged %zu curve %zu displaced %zu\n", cut, whole, damaged, curve,
              displaced);
  return 0;
}
