// SPDX-License-Identifier: GPL-3.0-or-later
#include "header/headers.h"

#include <cmath>

#include "header/flat_map.h"
#include "header/flat_map_writer.h"

namespace wavefront::wire {

namespace {

using Kind = Value::Kind;

constexpr std::size_t kMostOfInstance = 64;

// An entry of the map that may be missing.
class Field {
 public:
  explicit Field(std::string_view name) : name_(name) {}

  // Stores the value if it is this field's; returns false for a duplicate.
  bool offer(std::string_view name, const Value& value) {
    if (name != name_) return true;
    const bool first = !seen_;
    seen_ = true;
    value_ = value;
    return first;
  }

  bool is_text() const { return value_.kind == Kind::kText; }
  bool is_text_or_nil() const { return is_text() || value_.kind == Kind::kNil; }
  bool is_nil() const { return value_.kind == Kind::kNil; }
  bool is_number() const {
    return value_.kind == Kind::kInteger || (value_.kind == Kind::kFloat && std::isfinite(value_.number));
  }
  bool is_integer(std::int64_t least) const {
    return value_.kind == Kind::kInteger && value_.integer >= least;
  }
  const Value& value() const { return value_; }

 private:
  std::string_view name_;
  Value value_;
  bool seen_ = false;
};

// Returns true if the map is valid and has no duplicate field. Unknown fields are allowed.
template <typename... Fields>
bool fill(std::span<const unsigned char> data, Fields&... fields) {
  FlatMap map(data);
  std::string_view key;
  Value value;
  while (map.next(key, value)) {
    if (!(fields.offer(key, value) && ...)) return false;
  }
  return map.is_whole();
}

}  // namespace

std::optional<EvaluateHeader> evaluate_header(std::span<const unsigned char> data) {
  Field type("type"), id("id"), count("count"), priority("class"), network("network"),
      deadline("deadline_ms"), target("target_ms"), compression("compression");
  if (!fill(data, type, id, count, priority, network, deadline, target, compression)) return std::nullopt;
  if (type.value().text != "evaluate" || !type.is_text() || !id.is_integer(1) || !count.is_integer(1) ||
      !priority.is_text_or_nil() || !network.is_text_or_nil() || !compression.is_nil() ||
      !(deadline.is_nil() || deadline.is_number()) || !(target.is_nil() || target.is_number()))
    return std::nullopt;
  EvaluateHeader header;
  header.id = id.value().integer;
  header.count = count.value().integer;
  if (priority.is_text()) header.priority = priority.value().text;
  if (network.is_text()) header.network = network.value().text;
  if (!deadline.is_nil()) header.deadline_ms = deadline.value().number;
  if (!target.is_nil()) header.target_ms = target.value().number;
  return header;
}

std::optional<ResultHeader> result_header(std::span<const unsigned char> data) {
  Field type("type"), id("id"), queue("queue_ms"), compute("compute_ms"), batch("batch"),
      instance("instance"), network("network");
  if (!fill(data, type, id, queue, compute, batch, instance, network)) return std::nullopt;
  if (type.value().text != "result" || !type.is_text() || !id.is_integer(1) || !queue.is_number() ||
      !compute.is_number() || !batch.is_integer(0) || !instance.is_text_or_nil() ||
      instance.value().text.size() > kMostOfInstance || !network.is_text_or_nil())
    return std::nullopt;
  return ResultHeader{id.value().integer,    queue.value().number,  compute.value().number,
                      batch.value().integer, instance.value().text, network.value().text};
}

std::vector<unsigned char> written(const EvaluateHeader& header) {
  const bool has_network = !header.network.empty(), has_deadline = header.deadline_ms.has_value(),
             has_target = header.target_ms.has_value();
  FlatMapWriter map(4U + has_network + has_deadline + has_target);
  map.add("type", "evaluate");
  map.add("id", static_cast<std::uint64_t>(header.id));
  map.add("count", static_cast<std::uint64_t>(header.count));
  map.add("class", header.priority);
  if (has_network) map.add("network", header.network);
  if (has_deadline) map.add("deadline_ms", *header.deadline_ms);
  if (has_target) map.add("target_ms", *header.target_ms);
  return map.take();
}

std::vector<unsigned char> written(const ResultHeader& header) {
  const bool has_instance = !header.instance.empty(), has_network = !header.network.empty();
  FlatMapWriter map(5U + has_instance + has_network);
  map.add("type", "result");
  map.add("id", static_cast<std::uint64_t>(header.id));
  map.add("queue_ms", header.queue_ms);
  map.add("compute_ms", header.compute_ms);
  map.add("batch", static_cast<std::uint64_t>(header.batch));
  if (has_instance) map.add("instance", header.instance);
  if (has_network) map.add("network", header.network);
  return map.take();
}

}  // namespace wavefront::wire
