//! What disk and log say of a page, for the report of a failure.

use inkstone::Error;
use inkstone::internals::control::ControlFile;
use inkstone::internals::log::ReadParams;
use inkstone::internals::poison::Poison;
use inkstone::internals::recovery::{FrameSource, LogSource};
use inkstone_format::PageId;
use inkstone_format::header::{check_page, page_lsn};
use inkstone_format::record::Decoder;
use inkstone_io::sim::SimVfs;
use std::fmt::Write;
use std::path::Path;

/// Everything that can be told of the page that an error names. Works on the disk of a process that
/// has ended.
pub fn of_error(vfs: &SimVfs, directory: &Path, error: &Error) -> String {
    let Error::Corrupt { page, file, .. } = error else {
        return String::new();
    };
    let mut text = String::new();
    let Ok(control) = ControlFile::open(&*vfs.directory(directory), &Poison::default()) else {
        return "no control file".to_owned();
    };
    let control = control.current();
    let _ = writeln!(text, "{control:?}");
    if let Some(page) = page {
        let size = control.page_size as usize;
        let bytes = vfs.read_raw(file).unwrap_or_default();
        match bytes.get(page.page.0 as usize * size..(page.page.0 as usize + 1) * size) {
            None => text.push_str("the page is beyond the end of the file\n"),
            Some(bytes) => {
                let (lsn, whole) = (page_lsn(bytes), check_page(bytes, *page).is_ok());
                let _ = writeln!(text, "in place: LSN {lsn}, whole: {whole}");
            }
        }
        let copies = vfs.read_raw(&directory.join("doublewrite"));
        for block in copies.unwrap_or_default().chunks_exact(4096) {
            if block.len() == size && check_page(block, *page).is_ok() {
                let _ = writeln!(text, "copy: LSN {}", page_lsn(block));
            }
        }
    }
    log(vfs, directory, control, *page, &mut text);
    text
}

fn log(
    vfs: &SimVfs,
    directory: &Path,
    control: &inkstone_format::control::Control,
    page: Option<PageId>,
    text: &mut String,
) {
    let log = vfs.directory(directory.join("log"));
    let source = LogSource::open(ReadParams::of(control, log));
    let Ok(mut source) = source else { return };
    let mut decoder = Decoder::default();
    loop {
        let frame = match source.next() {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(error) => {
                let _ = writeln!(text, "log: {error}");
                break;
            }
        };
        let (start, end, epoch) = (frame.start, frame.end, frame.epoch);
        match decoder.decode(frame.payload) {
            Ok(records) => {
                for record in records {
                    if record.page() == page {
                        let mut shown = format!("{record:?}");
                        shown.truncate(400);
                        let _ = writeln!(text, "{start}..{end} epoch {epoch}: {shown}");
                    }
                }
            }
            Err(error) => {
                let _ = writeln!(text, "{start}..{end}: {error:?}");
            }
        }
    }
    let _ = writeln!(text, "end of the log: {}", source.position());
}
