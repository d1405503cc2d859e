/* SPDX-License-Identifier: GPL-2.0-only */
/* Parts of a row's value that lie outside of the row (docs/decisions/0053): read from the engine
   when a column that is wanted has them. */
#ifndef INKSTONE_OUTSIDE_H
#define INKSTONE_OUTSIDE_H

#include "codec/batch.h"
#include <memory>

class OutsideParts
{
public:
  OutsideParts() : outline(nullptr), cursor(nullptr), row(0), found(), room(0), no_memory(false), error() {}

  /** Of a row that is whole. */
  void of_none() { use(nullptr, nullptr, 0, ink_parts()); }
  void of(ink_outline *looked_up) { use(looked_up, nullptr, 0, ink_outline_parts(looked_up)); }
  /** Of row number `row` of those that a cursor has fetched. */
  void of(ink_cursor *scan, size_t row) { use(nullptr, scan, row, ink_cursor_parts(scan, row)); }

  size_t count() const { return found.count; }
  const ink_part &operator[](size_t n) const { return found.parts[n]; }

  /** The bytes of a part. They live until the next row's are fetched. nullptr: has_failed says
      why. */
  const uchar *fetch(size_t n);
  /** The whole value of a row that has `inline_bytes`; it lives as long. False: has_failed. */
  bool put_together(ink_slice inline_bytes, ink_slice *value);

  bool has_failed() const { return no_memory || error.code; }
  /** nullptr: there is no memory. */
  const ink_error *reason() const { return no_memory ? nullptr : &error; }

private:
  void use(ink_outline *of_outline, ink_cursor *of_cursor, size_t of_row, ink_parts parts);
  bool append(size_t n, Buffer &to);

  ink_outline *outline;
  ink_cursor *cursor;
  size_t row;
  ink_parts found;
  /** What was fetched, by number of part, in memory that is used again; and a whole value. */
  std::unique_ptr<Buffer[]> fetched;
  size_t room;
  Buffer whole;
  bool no_memory;
  ink_error error;
};

/** Parts of rows that are held back (codec/batch.h), in their order. */
class BatchParts
{
public:
  /** Adds those of the next row. True: out of memory. */
  bool add(ink_parts parts);
  /** Of all rows, or of one; valid until the next call. nullptr: out of memory. */
  const ink_parts *rows();
  void clear();

private:
  /** How many each row has, and all of them. */
  Buffer counts, parts, found;
};

#endif
