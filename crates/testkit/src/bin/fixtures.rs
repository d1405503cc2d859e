//! `cargo xtask fixtures`: makes the databases of the present format that later versions must open.

use inkstone_format::control::FORMAT_VERSION;
use inkstone_testkit::fixtures::make::{VARIANTS, make};
use inkstone_testkit::fixtures::{pack, version_folder};

fn main() -> Result<(), String> {
    let folder = version_folder(FORMAT_VERSION);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    for variant in VARIANTS {
        let fixture = make(variant)?;
        let mut archive = Vec::new();
        pack(&fixture.files, &mut archive).map_err(failed)?;
        let path = folder.join(variant.name);
        std::fs::write(path.with_extension("tar.gz"), &archive).map_err(failed)?;
        std::fs::write(path.with_extension("manifest"), fixture.manifest.show()).map_err(failed)?;
        let bytes: usize = fixture.files.iter().map(|(_, bytes)| bytes.len()).sum();
        println!(
            "{:<16} {bytes:>10} bytes, {:>7} packed",
            variant.name,
            archive.len()
        );
    }
    println!("written to {}", folder.display());
    Ok(())
}
