/* SPDX-License-Identifier: GPL-2.0-only */
/* The codecs of a table's keys and rows, from its definition. */
#include "codec/table_codec.h"

void TableCodec::init(TABLE *table, const KeyRoom &key_room)
{
  room= &key_room;
  primary_key= table->s->primary_key;
  if (primary_key < MAX_KEY)
    clustered.init(table->key_info[primary_key], nullptr, room);
  indexes.resize(table->s->keys);
  for (uint i= 0; i < table->s->keys; i++)
    indexes[i].init(table->key_info[i], is_clustered(i) ? nullptr : &clustered, room);
  for (const KeyCodec &index : indexes)
    for (const KeyPartCodec &part : index.parts())
      set_if_bigger(texts_since, part.images_since());
}

void TableCodec::use_layout(TABLE *table, const std::shared_ptr<const RowLayout> &layout, uint opened)
{
  if (layout_of == opened)
    return;
  rows.init(table, clustered, layout);
  layout_of= opened;
}
