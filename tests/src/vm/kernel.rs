//! Debian's kernel and its modules. `scripts/setup.sh` unpacks their package into `target/vm` and never installs it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use testing::PATIENCE;

use crate::{process::Launch, repository};

/// A bootable kernel.
#[derive(Debug)]
pub struct Kernel {
    image: PathBuf,
    release: String,
    /// Paths of the modules, by name.
    modules: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
}

/// A kernel module to load.
#[derive(Debug)]
pub struct Module {
    /// The module's name, with underscores instead of hyphens.
    pub name: String,
    /// The contents of its object file.
    pub contents: Vec<u8>,
}

impl Kernel {
    /// The kernel that `scripts/setup.sh test` fetched.
    ///
    /// # Errors
    /// If there is none.
    pub fn fetched() -> Result<Self> {
        let folder = repository().join("target/vm/kernel");
        Self::unpacked(&folder).with_context(|| {
            format!("there is no kernel to boot in {}: run scripts/setup.sh test", folder.display())
        })
    }

    /// A kernel whose package was unpacked into a folder.
    ///
    /// # Errors
    /// If the folder does not have a kernel with its modules.
    pub fn unpacked(folder: &Path) -> Result<Self> {
        let boot = folder.join("boot");
        let listed = fs::read_dir(&boot).with_context(|| format!("cannot read {}", boot.display()))?;
        let (image, release) = listed
            .flatten()
            .find_map(|entry| {
                let name = entry.file_name();
                Some((entry.path(), name.to_str()?.strip_prefix("vmlinuz-")?.to_owned()))
            })
            .with_context(|| format!("no vmlinuz in {}", boot.display()))?;
        // Debian 13's package has them below usr/lib instead.
        let tree = [folder.join("lib/modules"), folder.join("usr/lib/modules")]
            .map(|modules| modules.join(&release))
            .into_iter()
            .find(|tree| tree.is_dir())
            .with_context(|| format!("no modules of {release} in {}", folder.display()))?;
        let listed = fs::read_to_string(tree.join("modules.builtin"))
            .with_context(|| format!("no modules.builtin in {}", tree.display()))?;
        let built_in = listed.lines().filter_map(|line| module_name(Path::new(line))).collect();
        let mut modules = BTreeMap::new();
        find_modules(&tree.join("kernel"), &mut modules)?;
        Ok(Self { image, release, modules, built_in })
    }

    /// The path of the kernel's image.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The release, as shown by `uname -r`.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// These modules and all modules that they need, each after those that it needs. Leaves out modules that are built in.
    ///
    /// # Errors
    /// If there is no module with a name, or it cannot be read.
    pub fn with_needed(&self, names: &[String]) -> Result<Vec<Module>> {
        let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
        for name in names {
            self.add_with_needed(name, &mut order, &mut seen)?;
        }
        Ok(order)
    }

    fn add_with_needed(
        &self,
        name: &str,
        order: &mut Vec<Module>,
        seen: &mut BTreeSet<String>,
    ) -> Result<()> {
        let name = name.replace('-', "_");
        if self.built_in.contains(&name) || !seen.insert(name.clone()) {
            return Ok(());
        }
        let path = self.modules.get(&name).with_context(|| {
            format!("the kernel {} has no module {name}, neither built in nor to load", self.release)
        })?;
        let contents = object(path)?;
        for needed in needed_by(&contents) {
            self.add_with_needed(&needed, order, seen)?;
        }
        order.push(Module { name, contents });
        Ok(())
    }
}

fn find_modules(folder: &Path, modules: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find_modules(&entry.path(), modules)?;
        } else if let Some(name) = module_name(&entry.path()) {
            modules.insert(name, entry.path());
        }
    }
    Ok(())
}

/// The module's name, such as `sch_netem` for `net/sched/sch_netem.ko`, compressed or not; none if the path is not a module's.
fn module_name(path: &Path) -> Option<String> {
    let (stem, ending) = path.file_name()?.to_str()?.split_once(".ko")?;
    ["", ".xz", ".zst", ".gz"].contains(&ending).then(|| stem.replace('-', "_"))
}

/// A module's object file, uncompressed, because busybox cannot load compressed ones.
fn object(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(OsStr::to_str) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).with_context(|| format!("cannot read {}", path.display())),
    };
    let folder = crate::temporary::TemporaryFolder::new()?;
    let to = folder.path().join("module");
    let line = format!("{program} -dc < \"$1\" > \"$2\"");
    let launch = Launch::new("sh").args(["-c", &line, "sh"]);
    let (from_text, to_text) = (path.display().to_string(), to.display().to_string());
    let finished = launch.args([from_text, to_text]).run(PATIENCE)?;
    if finished.code != Some(0) {
        bail!("{program} cannot unpack {}: {}", path.display(), finished.stderr);
    }
    fs::read(&to).with_context(|| format!("cannot read {}", to.display()))
}

/// The modules that an object file needs, from its section `.modinfo`: zero-terminated texts, one of which is `depends=a,b`.
fn needed_by(object: &[u8]) -> Vec<String> {
    object
        .split(|&byte| byte == 0)
        .find_map(|text| str::from_utf8(text).ok()?.strip_prefix("depends="))
        .into_iter()
        .flat_map(|list| list.split(','))
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary::TemporaryFolder;

    #[test]
    fn modules_come_after_what_they_need_and_only_once() {
        let folder = TemporaryFolder::new().unwrap();
        let put = |path: &str, contents: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        };
        put("boot/vmlinuz-6.1", "");
        put("lib/modules/6.1/modules.builtin", "kernel/net/core-part.ko\n");
        put("lib/modules/6.1/kernel/net/ip_vs.ko", "license=GPL\0depends=nf-conntrack,libcrc32c\0");
        put("lib/modules/6.1/kernel/net/nf_conntrack.ko", "\0depends=libcrc32c,core-part\0");
        put("lib/modules/6.1/kernel/lib/libcrc32c.ko", "\0depends=\0");
        let kernel = Kernel::unpacked(folder.path()).unwrap();
        assert_eq!(kernel.release(), "6.1");
        let names = ["ip_vs".to_owned(), "libcrc32c".to_owned(), "core_part".to_owned()];
        let order: Vec<_> = kernel.with_needed(&names).unwrap().into_iter().map(|m| m.name).collect();
        assert_eq!(order, ["libcrc32c", "nf_conntrack", "ip_vs"]);
        let missing = kernel.with_needed(&["nonesuch".to_owned()]).unwrap_err().to_string();
        assert!(missing.contains("6.1 has no module nonesuch"), "{missing}");
    }

    #[test]
    fn only_modules_are_modules() {
        assert_eq!(module_name(Path::new("a/sch-tbf.ko.xz")).as_deref(), Some("sch_tbf"));
        assert_eq!(module_name(Path::new("a/modules.order")), None);
        assert_eq!(module_name(Path::new("a/x.ko.sig")), None);
    }
}
