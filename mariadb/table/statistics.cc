/* SPDX-License-Identifier: GPL-2.0-only */
/* Counting the values of indexes, and keeping what was found (table/statistics.h). */
#include "table/share.h"

/** InnoDB's innodb_stats_persistent_sample_pages and innodb_stats_transient_sample_pages. */
static const size_t SAMPLE_LEAVES= 20, TRANSIENT_SAMPLE_LEAVES= 8;

StatisticsOptions::StatisticsOptions(const TABLE_SHARE *definition)
    : persistent(!(definition->db_create_options & HA_OPTION_NO_STATS_PERSISTENT)),
      recalculated(definition->stats_auto_recalc != HA_STATS_AUTO_RECALC_OFF),
      leaves(!persistent ? TRANSIENT_SAMPLE_LEAVES
             : definition->stats_sample_pages ? definition->stats_sample_pages
                                              : SAMPLE_LEAVES)
{
}

void IndexValues::clear()
{
  of_index.clear();
  rows= 0;
  is_read= false;
}

/* An index of the same name that is made of the same. */
static std::string identity_of(const KEY &key)
{
  std::string text= key.name.str;
  for (uint i= 0; i < key.user_defined_key_parts; i++)
    text+= std::string("\n") + key.key_part[i].field->field_name.str + "\t" + std::to_string(key.key_part[i].length);
  return text;
}

static void put_number(std::vector<uchar> &bytes, uint64 number)
{
  uchar image[8];
  mi_int8store(image, number);
  bytes.insert(bytes.end(), image, image + sizeof image);
}

/** Reads what encode wrote. */
class FactReader
{
public:
  explicit FactReader(const std::vector<uchar> &bytes) : at(bytes.data()), end(at + bytes.size()) {}
  bool is_at_end() const { return at == end; }
  bool number(uint64 *found)
  {
    if (end - at < 8)
      return false;
    *found= mi_uint8korr(at);
    at+= 8;
    return true;
  }
  bool text(std::string *found)
  {
    uint64 length;
    if (!number(&length) || static_cast<uint64>(end - at) < length)
      return false;
    found->assign(reinterpret_cast<const char *>(at), length);
    at+= length;
    return true;
  }

private:
  const uchar *at, *end;
};

std::vector<uchar> IndexValues::encode(const TABLE_SHARE *definition) const
{
  std::vector<uchar> bytes;
  put_number(bytes, rows);
  for (size_t i= 0; i < of_index.size(); i++)
  {
    const std::string identity= identity_of(definition->key_info[i]);
    put_number(bytes, identity.size());
    bytes.insert(bytes.end(), identity.begin(), identity.end());
    put_number(bytes, of_index[i].size());
    for (const uint64 values : of_index[i])
      put_number(bytes, values);
  }
  return bytes;
}

void IndexValues::decode(const std::vector<uchar> &bytes, const TABLE_SHARE *definition)
{
  clear();
  FactReader reader(bytes);
  std::string identity;
  uint64 parts, number;
  if (!reader.number(&rows))
    return;
  is_read= true;
  of_index.resize(definition->keys);
  while (reader.text(&identity) && reader.number(&parts))
  {
    std::vector<uint64> found;
    while (found.size() < parts && reader.number(&number))
      found.push_back(number);
    for (uint i= 0; i < definition->keys && found.size() == parts; i++)
      if (identity_of(definition->key_info[i]) == identity)
        of_index[i]= found;
  }
}

int TableShare::read_values(THD *thd, const TABLE_SHARE *definition)
{
  std::vector<uchar> bytes;
  values.clear();
  if (!StatisticsOptions(definition).persistent)
    return 0;
  int failed= meta_get(thd, meta, INK_STR("statistics"), &bytes);
  if (!failed)
    values.decode(bytes, definition);
  return failed;
}

int TableShare::keep_statistics(THD *thd, const TABLE *table)
{
  std::lock_guard<std::mutex> latch(mutex);
  if (!StatisticsOptions(table->s).persistent || ink_is_read_only(database))
    return 0;
  if (exports)
  {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_UNKNOWN_ERROR,
                        "Inkstone: the table is being exported: these statistics are not kept over a restart");
    return 0;
  }
  const std::vector<uchar> bytes= values.encode(table->s);
  return meta_put(thd, meta, {{INK_STR("statistics"), slice_of(bytes)}}, INK_SYNC);
}

int TableShare::statistics(THD *thd, ink_table_estimates *found)
{
  std::lock_guard<std::mutex> latch(mutex);
  if (!has_statistics || changes.load(std::memory_order_relaxed) * 16 > found_statistics.rows)
  {
    ink_error error;
    changes.store(0, std::memory_order_relaxed);
    ink_tree_estimates facts;
    if (ink_estimate_table(this->table.get(), &found_statistics, &error) || ink_estimate_tree(meta.tree, &facts, &error))
      return handler_error(thd, error);
    /* The tree of facts is no index. */
    found_statistics.secondary_pages-= MY_MIN(facts.pages, found_statistics.secondary_pages);
    has_statistics= true;
  }
  *found= found_statistics;
  return 0;
}

void TableShare::forget_statistics()
{
  std::lock_guard<std::mutex> latch(mutex);
  has_statistics= false;
  values.clear();
}

/** Of a key: where its first parts end. */
struct FirstParts
{
  const KeyCodec *codec;
  uint count;
};

static size_t beginning_of(void *context, ink_slice key)
{
  const FirstParts *first= static_cast<FirstParts *>(context);
  size_t ends[2 * MAX_REF_PARTS];
  return first->codec->part_ends(key, ends) < first->count ? 0 : ends[first->count - 1];
}

/* How many parts of an index are asked for. All parts of a unique one have one row. */
static uint counted_parts(const KEY &key, const KeyCodec &codec)
{
  return codec.is_unique() ? key.user_defined_key_parts - 1 : key.ext_key_parts;
}

int TableShare::find_values(THD *thd, TABLE *table, uint index, const KeyCodec &codec)
{
  const ink_tree *tree= trees[index] ? trees[index] : clustered();
  const size_t leaves= StatisticsOptions(table->s).leaves;
  const uint parts= counted_parts(table->key_info[index], codec);
  std::vector<uint64> found(parts);
  for (uint i= 0; i < parts; i++)
  {
    ink_error error;
    FirstParts first= {&codec, i + 1};
    uint64_t different;
    if (ink_estimate_values(tree, leaves, beginning_of, &first, &different, &error))
      return handler_error(thd, error);
    found[i]= different;
  }
  values.of_index[index].swap(found);
  return 0;
}

int TableShare::rows_per_value(THD *thd, TABLE *table, const std::vector<KeyCodec> &indexes)
{
  std::lock_guard<std::mutex> latch(mutex);
  const uint64 rows= has_statistics ? found_statistics.rows : 0;
  if (values.is_read)
  {
    const uint64 changed= rows > values.rows ? rows - values.rows : values.rows - rows;
    changes_since_sample.fetch_add(changed, std::memory_order_relaxed);
    values.is_read= false;
  }
  const bool is_due= StatisticsOptions(table->s).recalculated &&
                     changes_since_sample.load(std::memory_order_relaxed) * 10 > rows;
  if (values.of_index.empty() || is_due)
  {
    changes_since_sample.store(0, std::memory_order_relaxed);
    values.of_index.assign(indexes.size(), std::vector<uint64>());
    values.rows= rows;
  }
  for (uint i= 0; i < indexes.size(); i++)
  {
    KEY &key= table->key_info[i];
    const uint counted= counted_parts(key, indexes[i]);
    if (values.of_index[i].size() != counted)
      if (int failed= find_values(thd, table, i, indexes[i]))
        return failed;
    for (uint part= 0; part < key.ext_key_parts; part++)
    {
      /* As InnoDB does it: the optimizer prefers table scans too much, so half of the rows for each
         value is told. */
      const uint64 found= part < counted ? MY_MAX(values.of_index[i][part], 1) : rows;
      const double count= found ? static_cast<double>(rows) / found / 2 : 0;
      key.rec_per_key[part]= count < 1 ? 1 : static_cast<ulong>(count);
    }
  }
  return 0;
}
