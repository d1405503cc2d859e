/* SPDX-License-Identifier: GPL-2.0-only */
/* How the rows of a table and the entries of its indexes are coded. */
#ifndef INKSTONE_TABLE_CODEC_H
#define INKSTONE_TABLE_CODEC_H

#include "codec/row_codec.h"

class TableCodec
{
public:
  TableCodec() : room(nullptr), layout_of(0), texts_since(1), primary_key(MAX_KEY) {}

  /** Prepares for an opened table; `key_room` is the table's, and lives as long. */
  void init(TABLE *table, const KeyRoom &key_room);
  /** Rows have their columns in these places from now on; `opened`: which opening of the table has
      that. */
  void use_layout(TABLE *table, const std::shared_ptr<const RowLayout> &layout, uint opened);

  bool hidden_row_id() const { return clustered.parts().empty(); }
  bool is_clustered(uint index) const { return index == primary_key; }
  /** Whether a row has entries in other trees than the clustered one. */
  bool has_entries() const { return indexes.size() > (hidden_row_id() ? 0 : 1); }
  /** The version of images (table/meta.h) since which those of all indexes are as they are now. */
  uint64 images_since() const { return texts_since; }

  KeyCodec clustered;
  /** Of all keys; that of the primary key is the clustered one's. */
  std::vector<KeyCodec> indexes;
  RowCodec rows;
  const KeyRoom *room;

private:
  uint layout_of;
  uint64 texts_since;
  uint primary_key;
};

#endif
