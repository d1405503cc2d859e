/* SPDX-License-Identifier: GPL-2.0-only */
/* An XID as the bytes under which the engine keeps a prepared transaction: format (4,
   little-endian), length of the first part (1), length of the second (1), both parts. */
#ifndef INKSTONE_XID_H
#define INKSTONE_XID_H

#include "server/engine.h"

class XidBytes
{
public:
  explicit XidBytes(const XID &xid) : length(6 + xid.gtrid_length + xid.bqual_length)
  {
    int4store(bytes, xid.formatID);
    bytes[4]= static_cast<uchar>(xid.gtrid_length);
    bytes[5]= static_cast<uchar>(xid.bqual_length);
    memcpy(bytes + 6, xid.data, length - 6);
  }

  ink_slice slice() const { return ink_slice{bytes, length}; }

  /** Takes the other's format, if its parts are the same; false: they are not. */
  bool take_format_of(ink_slice other)
  {
    if (other.len != length || memcmp(bytes + 4, other.data + 4, length - 4))
      return false;
    memcpy(bytes, other.data, 4);
    return true;
  }

  /** False: not one of ours. */
  static bool read(ink_slice from, XID *xid)
  {
    if (from.len < 6 || from.len != 6u + from.data[4] + from.data[5] ||
        from.len - 6 > sizeof xid->data)
      return false;
    xid->formatID= sint4korr(from.data);
    xid->gtrid_length= from.data[4];
    xid->bqual_length= from.data[5];
    memcpy(xid->data, from.data + 6, from.len - 6);
    return true;
  }

private:
  uchar bytes[6 + XIDDATASIZE];
  size_t length;
};

#endif
