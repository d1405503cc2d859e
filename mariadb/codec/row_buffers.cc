/* SPDX-License-Identifier: GPL-2.0-only */
/* Rows and entries from records of the server's. */
#include "codec/row_buffers.h"

bool RowImage::put_key(const TableCodec &codec, const uchar *record, const uchar *row_id)
{
  bool has_null;
  key.clear();
  return codec.hidden_row_id() ? key.append(row_id, ROW_ID_BYTES)
                               : codec.clustered.put_record(key, record, &has_null);
}

bool RowImage::put(const TableCodec &codec, const uchar *record, const uchar *row_id)
{
  if (put_key(codec, record, row_id) || codec.rows.put(value, outside, record))
    return true;
  /* The value of a cut key is gone through as a whole. */
  if (codec.room->is_cut(slice(key)))
    outside.clear();
  return codec.room->put_rest(value, slice(key));
}
