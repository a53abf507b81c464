//! Writing files whole or not at all.

use std::io::Write;
use std::path::Path;

use crate::{Error, Result};

/// Writes `data` beside `path` and renames it, so that a stopped run leaves no half file; makes the folder. What is there
/// and no regular file (a pipe, a device) is written into, not replaced.
///
/// # Errors
/// [`Error::Io`].
pub fn write_whole(path: &Path, data: &[u8]) -> Result<()> {
    // A link stays a link: what it points to is replaced.
    let target = std::fs::canonicalize(path);
    let path = target.as_deref().unwrap_or(path);
    let special = std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir());
    if special {
        let mut file =
            std::fs::OpenOptions::new().write(true).open(path).map_err(|e| Error::io(path, "opening", e))?;
        return file.write_all(data).and_then(|()| file.flush()).map_err(|e| Error::io(path, "writing", e));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|e| Error::io(path, "making the folder", e))?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|e| Error::io(path, "writing", e))?;
    file.write_all(data).and_then(|()| file.flush()).map_err(|e| Error::io(path, "writing", e))?;
    #[cfg(unix)]
    {
        // Temporary files are private; what is asked for is an ordinary file.
        use std::os::unix::fs::PermissionsExt;
        let _ = file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644));
    }
    file.persist(path).map_err(|e| Error::io(path, "renaming", e.error))?;
    Ok(())
}
