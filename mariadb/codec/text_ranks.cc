/* SPDX-License-Identifier: GPL-2.0-only */
/* Characters of the sets whose strnxfrm is not to be had, sorted once by their strnncollsp
   (text_order.h). */
#include "codec/text_order.h"
#include <algorithm>

namespace
{
/** A character, or a byte that begins none. */
struct Unit
{
  uchar bytes[3];
  uchar length;
};
} // namespace

static std::vector<Unit> all_units(CHARSET_INFO *charset)
{
  std::vector<Unit> units;
  for (uint first= 0; first < 256; first++)
  {
    uchar bytes[3]= {static_cast<uchar>(first), 0, 0};
    units.push_back({{bytes[0], 0, 0}, 1});
    for (uint second= 0; second < 256; second++)
    {
      bytes[1]= static_cast<uchar>(second);
      int found= charset->charlen(bytes, bytes + 2);
      if (found == 2)
        units.push_back({{bytes[0], bytes[1], 0}, 2});
      /* More bytes are asked for: of three. */
      if (found > 0 || !MY_CS_IS_TOOSMALL(found) || charset->mbmaxlen < 3)
        continue;
      for (uint third= 0; third < 256; third++)
      {
        bytes[2]= static_cast<uchar>(third);
        if (charset->charlen(bytes, bytes + 3) == 3)
          units.push_back({{bytes[0], bytes[1], bytes[2]}, 3});
      }
    }
  }
  return units;
}

void TextOrder::find_ranks()
{
  auto compare= [this](const Unit &a, const Unit &b) {
    return charset->coll->strnncollsp(charset, a.bytes, a.length, b.bytes, b.length);
  };
  std::vector<Unit> units= all_units(charset);
  std::sort(units.begin(), units.end(), [&](const Unit &a, const Unit &b) { return compare(a, b) < 0; });
  ranks_of_one.assign(1 << 8, 0);
  ranks_of_two.assign(1 << 16, 0);
  uint16 rank= 0;
  for (size_t i= 0; i < units.size(); i++)
  {
    const Unit &unit= units[i];
    const uchar *last= unit.bytes + unit.length - 1;
    if (i && compare(units[i - 1], unit))
      rank++;
    if (unit.length == 1)
      ranks_of_one[*last]= rank;
    else if (unit.length == 2)
      ranks_of_two[last[-1] << 8 | *last]= rank;
    else
    {
      ranks_of_three.resize(1 << 16);
      ranks_of_three[last[-1] << 8 | *last]= rank;
    }
  }
}
