// SPDX-License-Identifier: GPL-3.0-or-later
#include "tree/file_stream.h"

#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "chess/mix.h"

namespace wavefront::tree {
namespace {

uint64_t word_at(const char* bytes) {
  uint64_t word = 0;
  for (size_t i = 0; i < sizeof(word); ++i) word |= uint64_t{static_cast<unsigned char>(bytes[i])} << 8 * i;
  return word;
}

// Adds bytes to a sum. The last group is filled up with zeros.
uint64_t added(uint64_t sum, std::vector<char>& bytes, size_t count) {
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(count), sizeof(uint64_t) - 1, '\0');
  for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
    sum = chess::mix((sum ^ word_at(bytes.data() + i)) + chess::kGoldenGamma);
  }
  return sum;
}

}  // namespace

FileWriter::FileWriter(const std::filesystem::path& path) : file_(path, std::ios::binary | std::ios::trunc) {
  if (!file_) throw std::invalid_argument("the file cannot be written");
}

void FileWriter::put(const std::string& text) {
  put(static_cast<uint32_t>(text.size()));
  for (char letter : text) put(static_cast<uint8_t>(letter));
}

void FileWriter::write(size_t bytes) {
  file_.write(buffer_.data(), static_cast<std::streamsize>(bytes));
  if (!file_) throw std::invalid_argument("the file cannot be written: is the disk full?");
  written_ += bytes;
}

// Writes one full buffer. What is beyond it stays.
void FileWriter::flush() {
  const uint64_t beyond = word_at(buffer_.data() + kBuffer);
  const size_t more = used_ - kBuffer;
  sum_ = added(sum_, buffer_, kBuffer);
  write(kBuffer);
  for (size_t i = 0; i < sizeof(beyond); ++i) buffer_[i] = static_cast<char>(beyond >> 8 * i);
  used_ = more;
}

uint64_t FileWriter::finish() {
  sum_ = added(sum_, buffer_, used_);
  write(used_);
  used_ = 0;
  put(chess::mix(sum_ ^ written_));
  write(used_);
  file_.close();
  if (!file_) throw std::invalid_argument("the file cannot be written: is the disk full?");
  return written_;
}

FileReader::FileReader(const std::filesystem::path& path)
    : file_(path, std::ios::binary), buffer_(FileWriter::kBuffer + sizeof(uint64_t)) {
  std::error_code failed;
  bytes_ = std::filesystem::file_size(path, failed);
  if (failed || !file_) throw std::invalid_argument("the file cannot be read");
  if (bytes_ < sizeof(uint64_t)) throw std::invalid_argument("this is not a tree of Wavefront");
  left_ = bytes_ - sizeof(uint64_t);
}

void FileReader::read(size_t bytes) {
  file_.read(buffer_.data() + end_, static_cast<std::streamsize>(bytes));
  if (static_cast<size_t>(file_.gcount()) != bytes) throw std::invalid_argument("the file cannot be read");
  end_ += bytes;
}

void FileReader::refill(size_t needed) {
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(at_),
            buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
  end_ -= at_;
  at_ = 0;
  const auto more = static_cast<size_t>(std::min<uint64_t>(left_, FileWriter::kBuffer - end_));
  read(more);
  left_ -= more;
  if (end_ < needed) throw std::invalid_argument("the file is truncated");
}

std::string FileReader::take_text(size_t most) {
  const uint32_t length = take<uint32_t>();
  if (length > most) throw std::invalid_argument("the file is damaged: a text is too long");
  std::string text;
  for (uint32_t i = 0; i < length; ++i) text.push_back(static_cast<char>(take<uint8_t>()));
  return text;
}

bool FileReader::sum_matches() {
  file_.seekg(0);
  uint64_t sum = 0, left = bytes_ - sizeof(uint64_t);
  const uint64_t contents = left;
  while (left > 0) {
    at_ = end_ = 0;
    const auto count = static_cast<size_t>(std::min<uint64_t>(left, FileWriter::kBuffer));
    read(count);
    sum = added(sum, buffer_, count);
    left -= count;
  }
  at_ = end_ = left_ = 0;
  read(sizeof(uint64_t));
  end_ = 0;
  return word_at(buffer_.data()) == chess::mix(sum ^ contents);
}

}  // namespace wavefront::tree
