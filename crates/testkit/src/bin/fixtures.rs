//! `cargo xtask fixtures`: makes the databases of the present format that later versions must open;
//! those whose names are given, or all.

use inkstone_format::control::FORMAT_VERSION;
use inkstone_testkit::fixtures::make::{VARIANTS, make};
use inkstone_testkit::fixtures::{pack, version_folder};

fn main() -> Result<(), String> {
    let folder = version_folder(FORMAT_VERSION);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let names: Vec<String> = std::env::args().skip(1).collect();
    if let Some(name) = names
        .iter()
        .find(|name| VARIANTS.iter().all(|v| v.name != **name))
    {
        return Err(format!("there is no fixture {name}"));
    }
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|other| other == name);
    for variant in VARIANTS.iter().filter(|variant| is_wanted(variant.name)) {
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
