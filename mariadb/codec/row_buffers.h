/* SPDX-License-Identifier: GPL-2.0-only */
/* A row and an entry as their trees have them, in memory that is used again for each. */
#ifndef INKSTONE_ROW_BUFFERS_H
#define INKSTONE_ROW_BUFFERS_H

#include "codec/table_codec.h"

/** A row of the clustered tree. */
class RowImage
{
public:
  /** Takes the key of a row: of its primary key, or its hidden id. True: out of memory. */
  bool put_key(const TableCodec &codec, const uchar *record, const uchar *row_id);
  /** Takes a whole row. True: out of memory. */
  bool put(const TableCodec &codec, const uchar *record, const uchar *row_id);
  /** Takes a key's image as it is. True: out of memory. */
  bool take_key(ink_slice image) { return key.assign(image.data, image.len); }
  /** The key that the tree has, which lives as long as the image. True: out of memory. */
  bool tree_key(const TableCodec &codec, ink_slice *found) { return codec.room->tree_key(slice(key), cut, found); }
  /** What of a row that was taken as a whole may lie outside of it. */
  ink_parts parts() const
  {
    return {reinterpret_cast<const ink_part *>(outside.data()), outside.length() / sizeof(ink_part)};
  }
  bool same_key(const RowImage &other) const { return key.equals(other.key); }
  bool same(const RowImage &other) const { return same_key(other) && value.equals(other.value); }

  Buffer key, value;

private:
  Buffer cut, outside;
};

/** An entry of an index. */
struct EntryImage
{
  EntryImage() : is_unique(false) {}

  /** Takes the entry of the row in `record`, of which `row` has the key. True: out of memory. */
  bool put(const KeyCodec &codec, const uchar *record, const RowImage &row)
  {
    return codec.put_entry(key, value, record, row.key, &is_unique);
  }

  Buffer key, value;
  bool is_unique;
};

/** What a handler makes of records: of the row that is written, and of the one that was. */
struct RowBuffers
{
  RowBuffers() : row_id() {}

  RowImage row, old_row;
  EntryImage entry, old_entry;
  /** Of a table with hidden row ids: the current row's. */
  uchar row_id[ROW_ID_BYTES];
};

#endif
