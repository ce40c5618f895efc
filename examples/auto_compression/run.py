"""Compress by a YAML file alone, as PaddleSlim's AutoCompression did: `tersely compress` under its old name.

    python examples/auto_compression/run.py MODELS/tnews \\
        --config_path examples/auto_compression/configs/tnews_ptq.yaml --data_dir DATA --save_dir compressed/tnews
"""

import sys

from tersely.cli import main

if __name__ == "__main__":
    sys.exit(main(["compress", *sys.argv[1:]]))
