#!/bin/sh
# encode.sh TAR DIRECTORY: makes film.mp4, film.m3u8 and film.ts of the pictures in an archive with a list of them.
set -eu
rm -rf "$2" "$2.in"
mkdir -p "$2" "$2.in"
tar -C "$2.in" -xf "$1"
rm -f "$1"
cd "$2"
ffmpeg -nostdin -loglevel error -f concat -i "$2.in/list.txt" -vsync vfr \
    -vf 'scale=1280:720:force_original_aspect_ratio=decrease,pad=1280:720:(ow-iw)/2:(oh-ih)/2,format=yuv420p' \
    -c:v libx264 -preset veryfast -movflags +faststart film.mp4
ffmpeg -nostdin -loglevel error -i film.mp4 -c copy -f hls -hls_time 4 -hls_playlist_type vod -hls_flags single_file \
    -hls_segment_filename film.ts film.m3u8
rm -rf "$2.in"
