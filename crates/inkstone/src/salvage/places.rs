//! The place maps of placed tablespaces are made whole, before anything is read by them.
//!
//! Of each page there is an image that says of which page it is, and of which LSN. So where a block
//! of the map is lost, or the map, or a place in it is none, the images in units that no other page
//! has are looked at: of a page the newest is taken. It is the page's: units of it were not used
//! since, and whatever an image lacks is in the log (or there is no log to apply, and then it lacks
//! nothing). A page of which no image is found is marked as lost in the map.
//!
//! A map that is whole is left as it is.

use super::SalvageReport;
use crate::database::LeftOut;
use crate::paranoid::paranoid;
use crate::store::{
    is_place_map_file_name, parse_space_file_name, place_map_file_name, space_file_name,
};
use crate::{Error, Result};
use inkstone_format::control::Control;
use inkstone_format::header::{check_page, page_id, page_lsn};
use inkstone_format::image::{Codec, Compression, Made, UNIT_LEN, look_at_header, unpack};
use inkstone_format::place_map::{
    self, BLOCK_LEN, BLOCK_PLACES, Place, PlaceBlock, PlaceMapHeader, encode_again, encode_block,
};
use inkstone_format::{Lsn, SpaceId};
use inkstone_io::{Create, Directory, File, OpenOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Units that are looked at together.
const LOOK_UNITS: usize = 256;
/// A map is made for pages up to so many times the file's units, and some.
const PAGES_PER_UNIT_MAX: u64 = 4;
const PAGES_MIN: u64 = 1 << 16;

/// Makes the maps of all placed tablespaces whole.
pub(super) fn mend_maps(
    directory: &dyn Directory,
    control: &Control,
    report: &mut SalvageReport,
) -> Result<()> {
    let names = directory.list();
    let names = names.map_err(|e| Error::io("list", directory.path(), e))?;
    for name in &names {
        let Some(space) = parse_space_file_name(name) else {
            continue;
        };
        let map_name = place_map_file_name(space);
        let data = open(directory, name)?;
        let map = if names.contains(&map_name) {
            Some(read_all(directory, &map_name)?)
        } else if is_placed(&*data, directory, name)? {
            None
        } else {
            continue;
        };
        paranoid!(
            is_place_map_file_name(&map_name),
            "{map_name} is no place map"
        );
        let mut mending = Mending::new(space, control, data, directory)?;
        mending.read_map(map.as_deref());
        mending.drop_wrong_places();
        if mending.damage.is_empty() && !mending.is_unwritten() {
            continue;
        }
        let found = mending.look_for_images()?;
        if mending.damage.is_empty() && found == 0 {
            continue;
        }
        mending.write_map(directory, &map_name)?;
        // A process that was killed leaves images that no block names yet.
        if control.clean_shutdown || !mending.damage.is_empty() {
            mending.tell(directory, &map_name, found, report);
        }
    }
    Ok(())
}

struct Mending<'d> {
    directory: &'d dyn Directory,
    space: SpaceId,
    page_size: usize,
    data: Arc<dyn File>,
    units: u64,
    compression: Compression,
    places: Vec<Place>,
    /// Blocks that no slot has: never written, or zeroed since.
    unwritten: Vec<bool>,
    /// Pages that each unit has: at most one, but for what is damaged.
    users: Vec<u8>,
    damage: Vec<String>,
    /// Pages whose place was wrong: an image that is older than this is not theirs.
    misplaced: BTreeMap<u32, Lsn>,
}

impl<'d> Mending<'d> {
    fn new(
        space: SpaceId,
        control: &Control,
        data: Arc<dyn File>,
        directory: &'d dyn Directory,
    ) -> Result<Self> {
        let path = directory.path_of(&space_file_name(space));
        let length = data.len().map_err(|e| Error::io("measure", &path, e))?;
        let units = (length / UNIT_LEN as u64).min(u64::from(u32::MAX));
        Ok(Self {
            directory,
            space,
            page_size: control.page_size as usize,
            data,
            units,
            compression: Compression::Lz4,
            places: Vec::new(),
            unwritten: Vec::new(),
            users: vec![0; units as usize],
            damage: Vec::new(),
            misplaced: BTreeMap::new(),
        })
    }

    /// Takes from a map what can be believed.
    fn read_map(&mut self, map: Option<&[u8]>) {
        let Some(map) = map else {
            self.damage.push("it is missing".to_owned());
            return;
        };
        let blocks = map.as_chunks::<BLOCK_LEN>().0;
        let header = blocks.first().map(PlaceMapHeader::decode);
        match header {
            Some(Ok(header))
                if header.space == self.space && header.page_size as usize == self.page_size =>
            {
                self.compression = header.compression;
            }
            Some(Ok(header)) => self.damage.push(format!(
                "its header is of tablespace {} with pages of {} bytes",
                header.space, header.page_size
            )),
            Some(Err(corrupt)) => self.damage.push(format!("its header: {}", corrupt.detail)),
            None => self.damage.push("it has no header".to_owned()),
        }
        let slots = blocks.get(1..).unwrap_or_default();
        for (number, slots) in slots.chunks(2).enumerate() {
            let second = slots.get(1).unwrap_or(&[0; BLOCK_LEN]);
            let block = PlaceBlock::choose(number as u32, [&slots[0], second]);
            let block = block.unwrap_or_else(|corrupt| {
                let what = format!("block {number} in both slots: {}", corrupt.detail);
                self.damage.push(what);
                PlaceBlock::lost()
            });
            self.unwritten.push(block == PlaceBlock::empty());
            if block.places.iter().any(Place::is_lost) && block != PlaceBlock::lost() {
                let what = format!("block {number} was damaged before, and pages of it are lost");
                self.damage.push(what);
            }
            self.places.extend(block.places);
        }
        paranoid!(
            self.places.len() == self.unwritten.len() * BLOCK_PLACES,
            "{} places in {} blocks",
            self.places.len(),
            self.unwritten.len()
        );
    }

    /// Whether a block was perhaps zeroed.
    fn is_unwritten(&self) -> bool {
        self.unwritten.contains(&true) || self.places.is_empty()
    }

    fn units_of(place: &Place) -> std::ops::Range<usize> {
        place.unit as usize..place.unit as usize + place.units() as usize
    }

    /// Places that are beyond the file, or of units that another page has, are none.
    fn drop_wrong_places(&mut self) {
        let (units, page_size) = (self.users.len(), self.page_size);
        let fits = |place: &Place| {
            Self::units_of(place).end <= units
                && (place.length as usize) <= page_size
                && (place.codec != Codec::None || place.length as usize == page_size)
        };
        for place in self.places.iter().filter(|place| !place.is_empty()) {
            if fits(place) {
                let users = &mut self.users[Self::units_of(place)];
                users.iter_mut().for_each(|n| *n = n.saturating_add(1));
            }
        }
        for (page, place) in self.places.iter_mut().enumerate() {
            if place.is_empty() {
                continue;
            }
            if !fits(place) || self.users[Self::units_of(place)].iter().any(|&n| n > 1) {
                self.damage.push(format!(
                    "page {page} is said to be in {} units from {} on of {units}, which are not \
                     there, or another page's",
                    place.units(),
                    place.unit
                ));
                self.misplaced.insert(page as u32, place.lsn);
                *place = Place::LOST;
            }
        }
        self.users.fill(0);
        for place in self.places.iter().filter(|place| !place.is_empty()) {
            self.users[Self::units_of(place)].fill(1);
        }
        paranoid!(
            self.places
                .iter()
                .map(|place| place.units() as usize)
                .sum::<usize>()
                == self.users.iter().filter(|&&users| users > 0).count(),
            "two pages of tablespace {} have a unit",
            self.space
        );
    }

    /// Finds images of pages that have no place that is known; how many.
    fn look_for_images(&mut self) -> Result<usize> {
        let path = self.directory.path_of(&space_file_name(self.space));
        let more = self.page_size.div_ceil(UNIT_LEN);
        let mut bytes = vec![0; (LOOK_UNITS + more) * UNIT_LEN];
        let mut page = vec![0; self.page_size];
        let mut found: BTreeMap<u32, Place> = BTreeMap::new();
        for first in (0..self.users.len()).step_by(LOOK_UNITS) {
            let here = (LOOK_UNITS + more).min(self.users.len() - first) * UNIT_LEN;
            let read = self
                .data
                .read_at(&mut bytes[..here], (first * UNIT_LEN) as u64);
            read.map_err(|e| Error::io("read", &path, e))?;
            for n in 0..LOOK_UNITS.min(self.users.len() - first) {
                if self.users[first + n] > 0 {
                    continue;
                }
                let image = &bytes[n * UNIT_LEN..here];
                let Some((number, place)) = self.image_at((first + n) as u32, image, &mut page)
                else {
                    continue;
                };
                let known = found.get(&number).map(|older| older.lsn);
                let known = known.max(self.misplaced.get(&number).copied());
                let is_newer = known.is_none_or(|known| known <= place.lsn);
                if is_newer && self.may_have(number) {
                    found.insert(number, place);
                }
            }
        }
        paranoid!(
            found
                .values()
                .all(|place| Self::units_of(place).end <= self.users.len()),
            "an image of tablespace {} is found behind the file's end",
            self.space
        );
        let count = found.len();
        for (number, place) in found {
            let blocks = number as usize / BLOCK_PLACES + 1;
            if self.places.len() < blocks * BLOCK_PLACES {
                self.places.resize(blocks * BLOCK_PLACES, Place::default());
                self.unwritten.resize(blocks, true);
            }
            self.places[number as usize] = place;
        }
        Ok(count)
    }

    /// Whether the place of a page is not known.
    fn may_have(&self, page: u32) -> bool {
        let known = self.places.get(page as usize);
        let is_unwritten = |block: usize| self.unwritten.get(block).copied().unwrap_or(true);
        let within = u64::from(page) < self.units * PAGES_PER_UNIT_MAX + PAGES_MIN;
        within
            && known.is_none_or(|place| {
                place.is_lost()
                    || (*place == Place::default() && is_unwritten(page as usize / BLOCK_PLACES))
            })
    }

    /// The image of a page of the tablespace that is whole and begins here.
    fn image_at(&self, unit: u32, bytes: &[u8], page: &mut [u8]) -> Option<(u32, Place)> {
        let raw = || {
            let made = Made {
                codec: Codec::None,
                length: self.page_size as u32,
            };
            let bytes = bytes.get(..self.page_size)?;
            Some((page_id(bytes), page_lsn(bytes), made))
        };
        for (id, lsn, made) in [look_at_header(bytes), raw()].into_iter().flatten() {
            if id.space == self.space
                && unpack(made, id, bytes, page).is_ok()
                && check_page(page, id).is_ok()
                && page_lsn(page) == lsn
            {
                let Made { codec, length } = made;
                let place = Place {
                    unit,
                    length,
                    codec,
                    lsn,
                };
                return Some((id.page.0, place));
            }
        }
        None
    }

    /// Puts a new map in the place of what there is.
    fn write_map(&self, directory: &dyn Directory, name: &str) -> Result<()> {
        paranoid!(
            self.places.len().is_multiple_of(BLOCK_PLACES),
            "{} places are no whole blocks",
            self.places.len()
        );
        let new = format!("{name}.mended");
        let path = directory.path_of(&new);
        let failed = |e| Error::io("write", &path, e);
        let options = OpenOptions {
            create: Create::IfMissing,
            ..super::TO_WRITE
        };
        let file = directory.open(&new, options).map_err(failed)?;
        let header = PlaceMapHeader {
            space: self.space,
            page_size: self.page_size as u32,
            compression: self.compression,
        };
        file.set_len(0).map_err(failed)?;
        file.write_at(&header.encode(), 0).map_err(failed)?;
        for (number, places) in self.places.chunks(BLOCK_PLACES).enumerate() {
            let number = number as u32;
            let mut block = encode_block(number, 1, places);
            for written in 1..=2 {
                let at = place_map::slot_offset(number, written);
                file.write_at(&block, at).map_err(failed)?;
                encode_again(&mut block);
            }
        }
        file.sync().map_err(failed)?;
        let renamed = directory.rename(&new, name);
        renamed.map_err(|e| Error::io(format!("rename to {name}"), &path, e))?;
        let synced = directory.sync();
        synced.map_err(|e| Error::io("sync", directory.path(), e))
    }

    /// Names what was damaged.
    fn tell(
        &self,
        directory: &dyn Directory,
        name: &str,
        found: usize,
        report: &mut SalvageReport,
    ) {
        let path = directory.path_of(name);
        let lost = self.places.iter().filter(|place| place.is_lost()).count();
        let damage = match &self.damage[..] {
            [] => "blocks of it are zeroes".to_owned(),
            damage => damage.join("; "),
        };
        // Those of which no image was found are named with their file, if they were in use.
        let what = format!(
            "the place map: {damage}. Images of {found} pages were found, and none of {lost}, of \
             which some may never have been in use"
        );
        report.rebuilt.push(path.clone());
        report.left_out.push(LeftOut {
            file: path,
            page: None,
            what,
        });
    }
}

fn open(directory: &dyn Directory, name: &str) -> Result<Arc<dyn File>> {
    let options = OpenOptions {
        read_only: true,
        ..super::TO_WRITE
    };
    let file = directory.open(name, options);
    file.map_err(|e| Error::io("open", &directory.path_of(name), e))
}

fn read_all(directory: &dyn Directory, name: &str) -> Result<Vec<u8>> {
    let file = open(directory, name)?;
    let failed = |e| Error::io("read", &directory.path_of(name), e);
    let mut bytes = vec![0; file.len().map_err(failed)? as usize];
    file.read_at(&mut bytes, 0).map_err(failed)?;
    Ok(bytes)
}

/// Whether a file says of itself that its pages are placed.
fn is_placed(file: &dyn File, directory: &dyn Directory, name: &str) -> Result<bool> {
    let failed = |e| Error::io("read", &directory.path_of(name), e);
    let mut bytes = vec![0; (file.len().map_err(failed)?).min(UNIT_LEN as u64) as usize];
    file.read_at(&mut bytes, 0).map_err(failed)?;
    Ok(place_map::is_placed(&bytes))
}
