"""Compress by a YAML file alone, as PaddleSlim's AutoCompression did: `tersely compress` under its old name.

    python examples/auto_compression/run.py --config_path examples/auto_compression/configs/tnews_ptq.yaml \\
        --model_name_or_path MODELS/tnews --data_dir DATA --save_dir compressed/tnews
"""

import sys

from tersely.cli import main

if __name__ == "__main__":
    sys.exit(main(["compress", *sys.argv[1:]]))
