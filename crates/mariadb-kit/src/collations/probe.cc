/* SPDX-License-Identifier: GPL-2.0-only */
/* Runs in the server: makes key images of random texts with the handler's codec, and compares them
   with the server's own comparison of the texts.

   inkstone_collation(name, seed, texts) gives '' or the first difference: the shape of the key,
   both texts in hex, what the server says and what the images say. */
#include "codec/key_codec.h"
#include <my_sys.h>
#include <mysql/service_sha2.h>
#include <algorithm>
#include <mysql.h>
#include <random>
#include <string>

typedef std::basic_string<uchar> Text;
typedef std::mt19937_64 Random;

/** Columns have so many characters at most, but where long texts are asked for; a key has so many
    bytes. */
static const uint CHARACTERS_MAX= 48, KEY_BYTES_MAX= 3072;

/* The server itself has the function; a library of functions is not given the service. */
extern "C" void server_sha256(unsigned char *digest, const char *bytes, size_t length) asm("my_sha256");

static std::string hex(const uchar *bytes, size_t length)
{
  static const char digits[]= "0123456789abcdef";
  std::string text;
  for (size_t i= 0; i < length; i++)
  {
    text+= digits[bytes[i] >> 4];
    text+= digits[bytes[i] & 15];
  }
  return text;
}

/** Random texts of a collation: few letters, so that texts are often equal or begin alike, and
    everything else. */
class Texts
{
public:
  Texts(CHARSET_INFO *of_charset, uint64 seed) : charset(of_charset), random(seed) { find_special(); }

  Text next()
  {
    const size_t kind= below(10);
    Text text;
    const size_t count= below(4) ? below(9) : below(CHARACTERS_MAX + 8);
    for (size_t i= 0; i < count; i++)
      put_piece(text, kind);
    while (!below(3))
      put(text, below(4) ? ' ' : "\t\0\x01~"[below(4)]);
    return text;
  }

  /** A text of so many characters at most, whose image may be longer than the engine's keys: a long
      beginning, often that of the last one, and any end. */
  Text next_long(size_t characters)
  {
    if (beginning.empty() || !below(20))
    {
      const size_t kind= below(10);
      Text piece;
      for (size_t i= 1 + below(4); i > 0; i--)
        put_piece(piece, kind);
      beginning.clear();
      while (!piece.empty() && beginning.size() < characters * charset->mbminlen)
        beginning+= piece;
    }
    const size_t end= beginning.size() - MY_MIN(beginning.size(), below(12) * charset->mbmaxlen);
    return beginning.substr(0, end / charset->mbminlen * charset->mbminlen) + next();
  }

  /** The text with a small change, or none. */
  Text like(const Text &text)
  {
    Text other= text;
    const size_t at= text.empty() ? 0 : below(text.size() + 1) / charset->mbminlen * charset->mbminlen;
    Text piece;
    switch (below(6))
    {
    case 0:
      put_piece(other, below(10));
      break;
    case 1:
      put(other, ' ');
      break;
    case 2:
      put_piece(piece, below(10));
      other.insert(at, piece);
      break;
    case 3:
      if (!other.empty())
        other[below(other.size())]^= static_cast<uchar>(1U << below(8));
      break;
    case 4:
      other.resize(at);
      break;
    default:
      put_piece(piece, below(10));
      other.replace(at, MY_MIN(piece.size(), other.size() - at), piece);
      break;
    }
    return other;
  }

  size_t below(size_t limit) { return random() % limit; }

private:
  void put(Text &text, my_wc_t code)
  {
    uchar bytes[8];
    int length= charset->wc_mb(code, bytes, bytes + sizeof bytes);
    if (length > 0)
      text.append(bytes, length);
  }

  void put_piece(Text &text, size_t kind)
  {
    static const char words[][4]= {"c",  "ch", "Ch", "cH", "CH", "h",  "l",  "ll", "lj", "dz", "ae", "ss",
                                   "a",  "A",  "aa", "b",  "B",  " ",  "i",  "I",  "j",  "z",  "zs", "gy",
                                   "ng", "oe", "ue", "rr", "\t", "d",  "D",  "sz", "cs", "H",  "~",  "\x7f"};
    switch (kind)
    {
    case 0: /* any bytes */
      text+= static_cast<uchar>(random());
      return;
    case 1: /* few letters */
      put(text, "ab AB"[below(5)]);
      return;
    case 2: /* the set's own characters, by their bytes */
      put_native(text);
      return;
    case 3: /* code points of the first plane, or of any */
      put(text, below(3) ? below(0x10000) : below(0x110000));
      return;
    case 4: /* what the collation treats as one */
    case 5:
      if (!special.empty())
      {
        for (my_wc_t code : special[below(special.size())])
          put(text, code);
        return;
      }
      /* fall through */
    case 6: /* combining marks, ligatures, letters with accents, Thai, Hangul, controls */
    {
      static const uint ranges[][2]= {{0xc0, 0x180},    {0x300, 0x370},  {0xe00, 0xe60},  {0x1100, 0x1200},
                                      {0xfb00, 0xfb50}, {0x1e00, 0x1f00}, {0, 0x20},      {0x4e00, 0x4e40},
                                      {0xff00, 0xfff0}, {0xfff0, 0x10010}, {0x3040, 0x3100}, {0x2000, 0x2070},
                                      {0xac00, 0xac20}, {0xd7f0, 0xe010}, {0xfdf0, 0xfdfc}, {0x3300, 0x3360}};
      const uint *range= ranges[below(array_elements(ranges))];
      put(text, range[0] + below(range[1] - range[0]));
      return;
    }
    default: /* words */
      for (const char *letter= words[below(array_elements(words))]; *letter; letter++)
        put(text, static_cast<uchar>(*letter));
    }
  }

  void put_native(Text &text)
  {
    for (uint tries= 0; tries < 20; tries++)
    {
      uchar bytes[4];
      for (uchar &byte : bytes)
        byte= static_cast<uchar>(random());
      int length= charset->charlen(bytes, bytes + charset->mbmaxlen);
      if (length > 0)
      {
        text.append(bytes, length);
        return;
      }
    }
  }

  /* Contractions, their beginnings, and characters with several weights or none. */
  void find_special()
  {
    if (!charset->uca)
      return;
    for (uint level= 0; level < MY_UCA_WEIGHT_LEVELS; level++)
    {
      const MY_CONTRACTIONS &list= charset->uca->level[level].contractions;
      for (size_t i= 0; i < list.nitems; i++)
      {
        std::vector<my_wc_t> codes;
        for (my_wc_t code : list.item[i].ch)
          if (code)
            codes.push_back(code);
        special.push_back(codes);
        if (codes.size() > 1)
          codes.pop_back();
        special.push_back(codes);
      }
    }
  }

  CHARSET_INFO *charset;
  Random random;
  Text beginning;
  std::vector<std::vector<my_wc_t>> special;
};

/** One key part over one column, and a record for it. The field is in the statement's memory: a
    library of functions is not given the server's services. */
class KeyShape
{
public:
  enum Kind { VARCHAR, CHAR, TEXT };

  KeyShape(CHARSET_INFO *of_charset, Kind of_kind, uint of_characters, uint key_characters, bool is_descending)
      : charset(of_charset), kind(of_kind), characters(of_characters), in_key(key_characters),
        descending(is_descending)
  {
    static const LEX_CSTRING name= {STRING_WITH_LEN("c")};
    static uchar share_memory[sizeof(TABLE_SHARE)], table_memory[sizeof(TABLE)];
    TABLE_SHARE *share= reinterpret_cast<TABLE_SHARE *>(share_memory);
    TABLE *table= reinterpret_cast<TABLE *>(table_memory);
    const uint bytes= characters * charset->mbmaxlen;
    const DTCollation collation(charset, DERIVATION_IMPLICIT, MY_REPERTOIRE_UNICODE30);
    table->s= share;
    table->record[0]= record;
    if (kind == VARCHAR)
      field= new (current_thd->mem_root) Field_varstring(record, bytes, HA_VARCHAR_PACKLENGTH(bytes), nullptr, 0, Field::NONE, &name, share,
                                 collation);
    else if (kind == CHAR)
      field= new (current_thd->mem_root) Field_string(record, bytes, nullptr, 0, Field::NONE, &name, collation);
    else
      field= new (current_thd->mem_root) Field_blob(record, nullptr, 0, Field::NONE, &name, share, 2, collation);
    field->table= table;
    memset(&part, 0, sizeof part);
    part.field= field;
    part.length= static_cast<uint16>(in_key * charset->mbmaxlen);
    part.key_part_flag= (kind == VARCHAR ? HA_VAR_LENGTH_PART : kind == TEXT ? HA_BLOB_PART : 0) |
                        (descending ? HA_REVERSE_SORT : 0) |
                        (kind == TEXT || in_key < characters ? HA_PART_KEY_SEG : 0);
    part.store_length= part.length + (kind == CHAR ? 0 : HA_KEY_BLOB_LENGTH);
  }

  KeyShape(const KeyShape &)= delete;
  KeyShape &operator=(const KeyShape &)= delete;

  /** Cut, and of CHAR filled, as the column holds it. */
  Text stored(const Text &text) const
  {
    Text value= text.substr(0, position(text, characters));
    if (kind != CHAR)
      return value;
    /* Of an ill-formed text it cannot be said how many characters it has, and the server puts none
       into a column. */
    const char *begin= reinterpret_cast<const char *>(value.data());
    const size_t length= Well_formed_prefix(charset, begin, value.size(), characters).length();
    value.resize(field->pack_length());
    charset->fill(reinterpret_cast<char *>(&value[length]), value.size() - length, ' ');
    return value;
  }

  /** What the server says of two stored values, as far as the key has them. Of a CHAR it compares
      so many characters, as if all had them; InnoDB says how many, in bytes. */
  int compare(const Text &a, const Text &b) const
  {
    int order= kind == CHAR
                   ? charset->coll->strnncollsp_nchars(charset, a.data(), position(a, in_key), b.data(),
                                                       position(b, in_key), in_key * charset->mbminlen,
                                                       MY_STRNNCOLLSP_NCHARS_EMULATE_TRIMMED_TRAILING_SPACES)
                   : charset->coll->strnncollsp(charset, a.data(), position(a, in_key), b.data(), position(b, in_key));
    return descending ? -order : order;
  }

  /** The image of a stored value, by way of the record and of the server's key format: they must be
      equal. */
  bool image(const KeyPartCodec &codec, const Text &value, Buffer &out)
  {
    Buffer by_key;
    out.clear();
    set_record(value);
    codec.put_record(out, record);
    uchar key[KEY_BYTES_MAX + HA_KEY_BLOB_LENGTH];
    const size_t length= position(value, in_key);
    if (kind == CHAR)
      memcpy(key, value.data(), part.length);
    else
    {
      int2store(key, length);
      memcpy(key + HA_KEY_BLOB_LENGTH, value.data(), length);
    }
    codec.put_key(by_key, key);
    bool null;
    return out.equals(by_key) && codec.skip(out.data(), out.end(), &null) == out.end();
  }

  const KEY_PART_INFO &key_part() const { return part; }

  std::string name() const
  {
    static const char *const kinds[]= {"VARCHAR", "CHAR", "TEXT"};
    return std::string(kinds[kind]) + "(" + std::to_string(characters) + ") KEY (c(" + std::to_string(in_key) + ")" +
           (descending ? " DESC)" : ")");
  }

private:
  size_t position(const Text &text, uint count) const
  {
    const char *begin= reinterpret_cast<const char *>(text.data());
    size_t found= charset->charpos(begin, begin + text.size(), count);
    /* Of ill-formed texts charpos may say anything. */
    return MY_MIN(MY_MIN(found, text.size()), count * charset->mbmaxlen);
  }

  void set_record(const Text &value)
  {
    uchar *to= record;
    if (kind == VARCHAR)
    {
      const uint length_bytes= static_cast<Field_varstring *>(field)->length_bytes;
      if (length_bytes == 1)
        *to= static_cast<uchar>(value.size());
      else
        int2store(to, value.size());
      to+= length_bytes;
    }
    else if (kind == TEXT)
    {
      const uchar *data= value.data();
      int2store(to, value.size());
      memcpy(to + 2, &data, sizeof data);
      return;
    }
    memcpy(to, value.data(), value.size());
  }

  CHARSET_INFO *charset;
  Kind kind;
  uint characters, in_key;
  bool descending;
  Field *field;
  KEY_PART_INFO part;
  uchar record[KEY_BYTES_MAX + 16];
};

static int sign(int number) { return number < 0 ? -1 : number > 0; }

static int compare_images(const Buffer &a, const Buffer &b)
{
  int order= memcmp(a.data(), b.data(), MY_MIN(a.length(), b.length()));
  return order ? order : a.length() < b.length() ? -1 : a.length() > b.length();
}

/** A row of a tree as the handler makes it of an image. */
struct TreeRow
{
  Buffer key, value;
  bool make(const KeyRoom &room, const Buffer &image)
  {
    static const uchar own_value[]= "value";
    value.assign(own_value, sizeof own_value);
    key.assign(image.data(), image.length());
    if (room.cut(key, value) || key.length() > KEY_BYTES_MAX)
      return false;
    Buffer again, scratch;
    ink_slice point;
    ink_row row= {slice(key), slice(value)};
    return !room.tree_key(slice(image), scratch, &point) && point.len == key.length() &&
           !memcmp(point.data, key.data(), point.len) && room.restore(&row, again) && row.key.len == image.length() &&
           !memcmp(row.key.data, image.data(), image.length()) && row.value.len == sizeof own_value &&
           !memcmp(row.value.data, own_value, sizeof own_value);
  }
};

/* What is wrong with the tree's keys of two images; '' if nothing is. */
static std::string wrong_in_tree(const KeyRoom &room, const Buffer &a, const Buffer &b)
{
  TreeRow a_row, b_row;
  if (!a_row.make(room, a) || !b_row.make(room, b))
    return "an image of " + std::to_string(MY_MAX(a.length(), b.length())) +
           " bytes is longer than the engine's keys, or cannot be had from its row in the tree";
  const ink_slice a_head= room.head(slice(a)), b_head= room.head(slice(b));
  const int images= sign(compare_images(a, b)), keys= sign(compare_images(a_row.key, b_row.key));
  const bool same_head= room.is_cut(slice(a)) && room.is_cut(slice(b)) && !memcmp(a_head.data, b_head.data, a_head.len);
  if (same_head ? (images == 0) != (keys == 0) : images != keys)
    return "images " + std::to_string(images) + ", keys of the tree " + std::to_string(keys);
  return "";
}

/* The first difference of one shape of key; '' if there is none. */
static std::string differs(KeyShape &shape, Texts &texts, size_t count, size_t long_characters)
{
  const KeyPartCodec codec(shape.key_part());
  const KeyRoom room(KEY_BYTES_MAX);
  const auto random= [&] { return long_characters ? texts.next_long(long_characters) : texts.next(); };
  Text last= random();
  for (size_t i= 0; i < count; i++)
  {
    const Text next= texts.below(3) ? texts.like(last) : random();
    const Text a= shape.stored(last), b= shape.stored(next);
    Buffer a_image, b_image;
    if (!shape.image(codec, a, a_image) || !shape.image(codec, b, b_image))
      return shape.name() + ": the image by record is not that by key, or has no end: " + hex(b.data(), b.size());
    const int server= sign(shape.compare(a, b)), images= sign(compare_images(a_image, b_image));
    if (server != images)
      return shape.name() + ": server " + std::to_string(server) + ", images " + std::to_string(images) + ": " +
             hex(a.data(), a.size()) + " and " + hex(b.data(), b.size());
    const std::string wrong= wrong_in_tree(room, a_image, b_image);
    if (!wrong.empty())
      return shape.name() + ": " + wrong + ": " + hex(a.data(), a.size()) + " and " + hex(b.data(), b.size());
    last= next;
  }
  return "";
}

static std::string examine(CHARSET_INFO *charset, uint64 seed, size_t count)
{
  Texts texts(charset, seed + charset->number);
  static const uint sizes[][2]= {{CHARACTERS_MAX, CHARACTERS_MAX}, {CHARACTERS_MAX, 3}, {5, 5}, {12, 1}};
  for (const uint *size : sizes)
    for (KeyShape::Kind kind : {KeyShape::VARCHAR, KeyShape::CHAR, KeyShape::TEXT})
      for (bool descending : {false, true})
      {
        KeyShape shape(charset, kind, size[0], size[1], descending);
        std::string found= differs(shape, texts, count / 24 + 1, 0);
        if (!found.empty())
          return found;
      }
  const uint most= KEY_BYTES_MAX / charset->mbmaxlen;
  for (KeyShape::Kind kind : {KeyShape::VARCHAR, KeyShape::TEXT})
    for (bool descending : {false, true})
    {
      KeyShape shape(charset, kind, most, most, descending);
      std::string found= differs(shape, texts, count / 80 + 1, most);
      if (!found.empty())
        return found;
    }
  return "";
}

extern "C" my_bool inkstone_collation_init(UDF_INIT *init, UDF_ARGS *arguments, char *message)
{
  if (arguments->arg_count != 3)
  {
    strcpy(message, "inkstone_collation(name, seed, texts)");
    return 1;
  }
  static struct my_sha2_service_st service;
  service.my_sha256_type= server_sha256;
  my_sha2_service= &service;
  arguments->arg_type[0]= STRING_RESULT;
  arguments->arg_type[1]= arguments->arg_type[2]= INT_RESULT;
  init->max_length= 4096;
  init->ptr= reinterpret_cast<char *>(new std::string);
  return 0;
}

extern "C" void inkstone_collation_deinit(UDF_INIT *init) { delete reinterpret_cast<std::string *>(init->ptr); }

extern "C" char *inkstone_collation(UDF_INIT *init, UDF_ARGS *arguments, char *, unsigned long *length, uchar *,
                                    uchar *)
{
  std::string &answer= *reinterpret_cast<std::string *>(init->ptr);
  const std::string name(arguments->args[0], arguments->lengths[0]);
  CHARSET_INFO *charset= get_charset_by_name(name.c_str(), MYF(0));
  answer= !charset ? "the server cannot load it"
                   : examine(charset, *reinterpret_cast<ulonglong *>(arguments->args[1]),
                             *reinterpret_cast<ulonglong *>(arguments->args[2]));
  *length= answer.size();
  return &answer[0];
}
