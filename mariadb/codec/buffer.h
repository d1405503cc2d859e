/* SPDX-License-Identifier: GPL-2.0-only */
/* Bytes that grow. Allocation failure is a return value: nothing here throws. */
#ifndef INKSTONE_BUFFER_H
#define INKSTONE_BUFFER_H

#include "common.h"

class Buffer
{
public:
  Buffer() : bytes(nullptr), used(0), capacity(0) {}
  ~Buffer() { free(bytes); }
  Buffer(const Buffer &)= delete;
  Buffer &operator=(const Buffer &)= delete;

  uchar *data() { return bytes; }
  const uchar *data() const { return bytes; }
  size_t length() const { return used; }
  uchar *end() { return bytes + used; }
  void clear() { used= 0; }
  void truncate(size_t length) { used= length; }

  /** Makes room for `more` bytes behind the end; true: out of memory. */
  bool reserve(size_t more)
  {
    if (used + more <= capacity)
      return false;
    size_t wanted= (used + more) + capacity / 2 + 64;
    uchar *moved= static_cast<uchar *>(realloc(bytes, wanted));
    if (!moved)
      return true;
    bytes= moved;
    capacity= wanted;
    return false;
  }

  /** Counts bytes as used that were written into reserved room. */
  void grow_to(const uchar *new_end) { used= new_end - bytes; }

  /** One byte into reserved room. */
  void put(uchar byte) { bytes[used++]= byte; }

  bool append(const uchar *from, size_t count)
  {
    if (reserve(count))
      return true;
    if (count)
      memcpy(bytes + used, from, count);
    used+= count;
    return false;
  }

  bool assign(const uchar *from, size_t count)
  {
    used= 0;
    return append(from, count);
  }

  bool equals(const Buffer &other) const
  {
    return used == other.used && (!used || !memcmp(bytes, other.bytes, used));
  }

private:
  uchar *bytes;
  size_t used, capacity;
};

inline ink_slice slice(const Buffer &buffer)
{
  return ink_slice{buffer.data(), buffer.length()};
}

#endif
