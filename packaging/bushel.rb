# A Homebrew formula, for a tap of one's own. Not tested yet.
#   brew tap-new you/bushel && cp packaging/bushel.rb "$(brew --repository you/bushel)/Formula/"
#   brew install --HEAD you/bushel/bushel && brew services start bushel
class Bushel < Formula
  desc "Inference server for language and vision models on Apple's MLX"
  homepage "https://github.com/bushel-mlx/bushel"
  license "Apache-2.0"
  head "https://github.com/bushel-mlx/bushel.git", branch: "main"

  depends_on arch: :arm64
  depends_on macos: :sonoma
  depends_on "python@3.12"

  # MLX comes as a wheel with its kernels compiled, so that nothing is built here.
  def install
    system "python3.12", "-m", "venv", libexec
    system libexec/"bin/pip", "install", buildpath
    bin.install_symlink libexec/"bin/bushel"
    generate_completions_from_executable(bin/"bushel", "completion")
  end

  # The model and flags are lines of ~/.config/bushel/bushel.toml. Homebrew cannot set how long launchd
  # waits for the end (20 s), so --drain-seconds has to be less; packaging/launchd.plist waits longer.
  service do
    run [opt_bin/"bushel", "serve", "--drain-seconds", "10"]
    keep_alive crashed: true
    log_path var/"log/bushel.log"
    error_log_path var/"log/bushel.log"
  end

  test do
    assert_match "bushel", shell_output("#{bin}/bushel --version")
  end
end
