//! A wheel is a zip archive: members are read out of it, nothing of it is installed or run.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Component, Path};

use zip::ZipArchive;

use super::cache::{self, cannot_write};
use crate::{Cancel, Error, Result};

/// More files than this are in no model folder.
const MANY: usize = 1_000;

/// An open wheel.
pub(crate) struct Wheel<'a> {
    path: &'a Path,
    archive: ZipArchive<File>,
    names: Vec<String>,
}

impl<'a> Wheel<'a> {
    /// Opens a wheel and reads its list of members.
    pub(crate) fn open(path: &'a Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::io(path, "read", source))?;
        let bad = |error: zip::result::ZipError| Error::format(path, "zip directory", error.to_string());
        let archive = ZipArchive::new(file).map_err(bad)?;
        let names = archive.file_names().map(|name| name.map(|name| name.into_owned()));
        let names = names.collect::<std::result::Result<_, _>>().map_err(bad)?;
        Ok(Self { path, archive, names })
    }

    /// Name of the one member that fits: its ending is `ending`, in which `#` stands for the number `part`.
    pub(crate) fn member(&self, ending: &str, part: u32) -> Result<String> {
        let contents = || self.names.iter().map(String::as_str).filter(|name| !name.contains(".dist-info/"));
        let fitting: Vec<&str> = contents().filter(|name| fits(name, ending, part)).collect();
        match fitting.as_slice() {
            [one] => Ok((*one).to_string()),
            found => {
                let names: Vec<&str> = contents().take(20).collect();
                let wanted = ending.replace('#', &part.to_string());
                let problem = format!(
                    "{} members end in `{wanted}`, one was expected. In the wheel: {}. The package is not the one \
                     that this program knows; update the program, or give a path to a model file",
                    found.len(),
                    names.join(", ")
                );
                Err(Error::format(self.path, "members", problem))
            }
        }
    }

    /// Writes a member, of at most `limit` bytes, to `out` (a file at `target`). Returns its size.
    pub(crate) fn copy(
        &mut self,
        member: &str,
        limit: u64,
        out: &mut dyn Write,
        target: &Path,
        cancel: &Cancel,
        advance: &dyn Fn(u64),
    ) -> Result<u64> {
        let bad = |problem: String| Error::format(self.path, member.to_string(), problem);
        let mut entry = self.archive.by_name(member).map_err(|error| bad(error.to_string()))?;
        let mut buffer = vec![0_u8; 256 << 10];
        let mut done = 0_u64;
        loop {
            cancel.check()?;
            // The archive checks the CRC at the end of the member, so damage shows up here.
            let count = entry.read(&mut buffer).map_err(|error| bad(error.to_string()))?;
            if count == 0 {
                return Ok(done);
            }
            done += count as u64;
            if done > limit {
                return Err(bad(format!("holds more than the {limit} bytes that are left of the model")));
            }
            out.write_all(buffer.get(..count).unwrap_or_default())
                .map_err(|source| cannot_write(target, "write", source))?;
            advance(done);
        }
    }

    /// Writes everything below `folder` (with slashes at both ends) into the new folder `target`.
    pub(crate) fn copy_folder(
        &mut self,
        folder: &str,
        limit: u64,
        target: &Path,
        cancel: &Cancel,
    ) -> Result<()> {
        let inside = |name: &str| {
            let (_, inner) = name.split_once(folder)?;
            (!inner.is_empty() && !inner.ends_with('/')).then(|| (name.to_string(), inner.to_string()))
        };
        let members: Vec<(String, String)> = self.names.iter().filter_map(|name| inside(name)).collect();
        if members.is_empty() || members.len() > MANY {
            let problem = format!(
                "{} files below `{folder}`; the package is not the one that this program knows",
                members.len()
            );
            return Err(Error::format(self.path, "members", problem));
        }
        let mut left = limit;
        for (name, inner) in members {
            let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            if !Path::new(&inner).components().all(plain) || inner.contains(['\\', ':']) {
                return Err(Error::format(self.path, name, "leads out of the model's folder"));
            }
            let path = target.join(&inner);
            cache::make_folder(path.parent().unwrap_or(target))?;
            let mut file = File::create(&path).map_err(|source| cannot_write(&path, "write", source))?;
            left -= self.copy(&name, left, &mut file, &path, cancel, &|_| ())?;
            file.sync_all().map_err(|source| cannot_write(&path, "write", source))?;
        }
        Ok(())
    }
}

/// Whether a member's name ends as the pattern says.
fn fits(name: &str, ending: &str, part: u32) -> bool {
    let Some((before, after)) = ending.split_once('#') else { return name.ends_with(ending) };
    let Some(rest) = name.strip_suffix(after) else { return false };
    let digits = rest.len() - rest.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let Some((stem, number)) = rest.split_at_checked(rest.len() - digits) else { return false };
    stem.ends_with(before) && number.parse() == Ok(part)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn members_are_found_by_their_number_not_by_their_digits() {
        assert!(fits("p/data/part01.bin", "part#.bin", 1));
        assert!(fits("p/data/part1.bin", "part#.bin", 1));
        assert!(!fits("p/data/part11.bin", "part#.bin", 1));
        assert!(!fits("p/data/part.bin", "part#.bin", 0));
        assert!(fits("p/m.gguf.part00", ".gguf.part#", 0));
        assert!(!fits("p/m.gguf.part00", ".gguf.part#", 1));
        assert!(fits("p/m.gguf", ".gguf", 7) && !fits("p/m.ggu", ".gguf", 7));
    }
}
